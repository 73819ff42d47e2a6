package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/ociimage"
)

// written writes an image as an OCI layout, and returns its directory and the files in it.
func written(t *testing.T, img v1.Image) (dir string, at map[string]string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "layout")
	if err := ociimage.WriteLayout(dir, img); err != nil {
		t.Fatal(err)
	}
	blob := func(h v1.Hash, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, "blobs", h.Algorithm, h.Hex)
	}
	return dir, map[string]string{
		"index": filepath.Join(dir, "index.json"), "manifest": blob(img.Digest()),
		"configuration": blob(img.ConfigName()), "layer": blob(firstLayer(t, img), nil),
	}
}

// packed packs a directory unchanged, with pipes and links.
func packed(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// gzipped compresses a file.
func gzipped(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".gz", buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path + ".gz"
}

// compressed compresses a file with a program.
func compressed(t *testing.T, program, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "-c", path).Output()
	if err == nil {
		path += "." + program
		err = os.WriteFile(path, out, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// replace replaces a file by another kind.
func replace(t *testing.T, path string, with func(string) error) {
	t.Helper()
	if err := errors.Join(os.Remove(path), with(path)); err != nil {
		t.Fatal(err)
	}
}

// enlarge writes a sparse file of 1.5 GB.
func enlarge(path string) error {
	return errors.Join(os.WriteFile(path, []byte(`{"a":"`), 0o600), os.Truncate(path, 1500<<20))
}

// TestLoadOnlyFiles: anything but a regular file of the image's own is refused at once, wherever it is, and no lock
// stays.
func TestLoadOnlyFiles(t *testing.T) {
	t.Parallel()
	pipe := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	for _, place := range []string{"index", "manifest", "configuration", "layer"} {
		for what, with := range map[string]func(string) error{
			"pipe":      pipe,
			"directory": func(path string) error { return os.Mkdir(path, 0o700) },
			"link out":  func(path string) error { return os.Symlink(archivedElsewhere(t, path), path) },
			"device":    func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			dir, at := written(t, imageOf(t, tarOf(t, file("f", "body"))))
			replace(t, at[place], with)
			refused(t, place+" is a "+what, "oci:"+dir)
		}
	}
	alone := filepath.Join(t.TempDir(), "pipe")
	if err := pipe(alone); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"oci-archive:" + alone, "docker-archive:" + alone, "oci:" + alone, alone, "/dev/zero"} {
		refused(t, "no file", source)
	}
}

// archivedElsewhere moves a copy of a file out of its layout.
func archivedElsewhere(t *testing.T, _ string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// refused loads an invalid image.
func refused(t *testing.T, what, source string) {
	t.Helper()
	s, _ := openStore(t, "run")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := s.Load(ctx, source, "x", PullOptions{})
	if err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %s: %v", what, source, err)
	}
	noTemps(t, s)
}

// TestLoadReadsLittle: a manifest of 1.5 GB is not read.
func TestLoadReadsLittle(t *testing.T) {
	for _, place := range []string{"index", "manifest", "configuration"} {
		dir, at := written(t, imageOf(t, tarOf(t, file("f", "body"))))
		replace(t, at[place], enlarge)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		refused(t, "large "+place, "oci:"+dir)
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 64 {
			t.Errorf("a large %s: %d MiB are allocated", place, took)
		}
	}
}

// TestLoadUnderTheReserve: only the image's own files in an archive are unpacked, and unpacking leaves the reserve.
func TestLoadUnderTheReserve(t *testing.T) {
	dir, _ := written(t, imageOf(t, tarOf(t, file("f", "body"))))
	junk := filepath.Join(dir, "blobs", "sha256", strings.Repeat("0", 64))
	if err := errors.Join(os.WriteFile(junk, nil, 0o600), os.Truncate(junk, 100<<20)); err != nil {
		t.Fatal(err)
	}
	plain := packed(t, dir)
	small := packed(t, func() string { dir, _ := written(t, imageOf(t, tarOf(t, file("f", "body")))); return dir }())
	saved := archived(t, "registry.test/demo:1", "body")
	tests := []struct {
		what, source string
		want         error
	}{
		{what: "unused blob", source: "oci-archive:" + plain},
		{what: "compressed", source: "oci-archive:" + gzipped(t, small)},
		{what: "saved by docker, compressed", source: "docker-archive:" + gzipped(t, saved)},
		{what: "unused blob, compressed", source: "oci-archive:" + gzipped(t, plain), want: ErrNoSpace},
	}
	for _, tc := range tests {
		t.Run(tc.what, func(t *testing.T) {
			s, base := smallStore(t)
			t.Setenv("TMPDIR", "/nonexistent") // must not be used
			least := watchFree(t, base, func() {
				if _, err := s.Load(testContext(t), tc.source, "x", PullOptions{}); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
			})
			if least < reserve {
				t.Errorf("%d MiB were left, of %d", least>>20, int64(reserve)>>20)
			}
			noTemps(t, s)
		})
	}
}

// watchFree returns the least free space on dir's file system during f.
func watchFree(t *testing.T, dir string, f func()) (least int64) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	for least = 1 << 62; ; time.Sleep(time.Millisecond) {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			t.Error(err)
		}
		least = min(least, int64(fs.Bavail)*fs.Bsize)
		select {
		case <-done:
			return least
		default:
		}
	}
}

// TestLoadCancelled: reading a file of 4 GiB can be cancelled.
func TestLoadCancelled(t *testing.T) {
	const size = 4 << 30
	img := imageOf(t, tarOf(t, file("f", "body")))
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	m = m.DeepCopy()
	m.Layers[0].Size = size
	dir, at := written(t, linkedImage{img, m})
	replace(t, at["layer"], enlarge)
	if err := os.Truncate(at["layer"], size); err != nil {
		t.Fatal(err)
	}
	s, _ := openStore(t, "run")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last Progress
	_, err = s.Load(ctx, "oci:"+dir, "x", PullOptions{Progress: func(p Progress) {
		if last = p; p.Offset > 0 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || last.Offset == size {
		t.Errorf("after %d bytes: %v", last.Offset, err)
	}
	noTemps(t, s)
}

// TestLoadReadsNoMoreThanFits: a sparse layer of 1 TiB is not hashed for hours.
func TestLoadReadsNoMoreThanFits(t *testing.T) {
	const size = 1 << 40
	path := filepath.Join(t.TempDir(), "archive.tar")
	archive := tarOf(t, file("manifest.json", `[{"Config":"c","Layers":["l"]}]`), file("c", "{}"))
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "l", Size: size, Format: tar.FormatGNU}); err != nil {
		t.Fatal(err)
	}
	archive = append(archive[:len(archive)-1024], head.Bytes()...)
	if err := errors.Join(os.WriteFile(path, archive, 0o600), os.Truncate(path, int64(len(archive))+size)); err != nil {
		t.Fatal(err)
	}
	refused(t, "a layer of 1 TiB", "docker-archive:"+path)
}

// TestLoadFindsItsFormat: a path alone is enough, and the image keeps its names.
func TestLoadFindsItsFormat(t *testing.T) {
	img := imageOf(t, tarOf(t, file("f", "body")))
	dir, _ := written(t, img)
	named, namedAt := written(t, img)
	annotate(t, namedAt["index"], map[string]string{"org.opencontainers.image.ref.name": "registry.test/oci:2"})
	both, bothAt := written(t, img)
	annotate(t, bothAt["index"], map[string]string{
		"org.opencontainers.image.ref.name": "latest", "io.containerd.image.name": "registry.test/containerd:3",
	})
	saved := archived(t, "registry.test/saved:1", "body")
	for _, tc := range []struct{ what, path, names string }{
		{what: "layout", path: dir},
		{what: "layout with a name", path: named, names: "registry.test/oci:2"},
		{what: "layout with two names", path: both, names: "registry.test/containerd:3"},
		{what: "archive", path: packed(t, named), names: "registry.test/oci:2"},
		{what: "compressed archive", path: gzipped(t, packed(t, named)), names: "registry.test/oci:2"},
		{what: "saved by docker", path: saved, names: "registry.test/saved:1"},
		{what: "saved by docker, compressed", path: gzipped(t, saved), names: "registry.test/saved:1"},
		{what: "saved by docker, xz", path: compressed(t, "xz", saved), names: "registry.test/saved:1"},
		{what: "saved by docker, zstd", path: compressed(t, "zstd", saved), names: "registry.test/saved:1"},
		{what: "saved by docker, bzip2", path: compressed(t, "bzip2", saved), names: "registry.test/saved:1"},
	} {
		s, _ := openStore(t, "run")
		got := load(t, s, tc.path, "")
		if strings.Join(got.Names, " ") != tc.names || read(t, s, got.ID, "f") != "body" {
			t.Errorf("%s: names %q, want %q", tc.what, got.Names, tc.names)
		}
	}
	empty := t.TempDir()
	junk := filepath.Join(empty, "junk")
	if err := os.WriteFile(junk, []byte(randomText(1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, junk, os.DevNull} {
		refused(t, "no image", path)
	}
}

// annotate adds annotations to the only image of an index.
func annotate(t *testing.T, path string, annotations map[string]string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(data, &index); err != nil {
		t.Fatal(err)
	}
	index.Manifests[0].Annotations = annotations
	if data, err = json.Marshal(index); err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLoadHostileArchives: archives with invalid members.
func TestLoadHostileArchives(t *testing.T) {
	t.Parallel()
	index := `{"schemaVersion":2,"manifests":[]}`
	many := make([]entry, 20000)
	for i := range many {
		many[i] = file(strings.Repeat("d/", i%100)+"f", "")
	}
	for what, entries := range map[string][]entry{
		"index is a pipe":           {{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "index.json"}}},
		"index is a link to itself": {{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "index.json", Linkname: "index.json"}}},
		"index is a link out":       {{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "index.json", Linkname: "/etc/passwd"}}},
		"index of nothing":          {file("index.json", index)},
		"index of 5 MiB":            {file("index.json", index+strings.Repeat(" ", 5<<20))},
		"manifest without files":    {file("manifest.json", `[{"Config":"c","Layers":["l"]}]`)},
		"manifest of many layers": {
			file("manifest.json", `[{"Config":"c","Layers":[`+strings.Repeat(`"l",`, 5000)+`"l"]}]`),
			file("c", "{}"),
			file("l", "x"),
		},
		"manifest of several images": {file("manifest.json", `[{"Config":"c"},{"Config":"d"}]`)},
		"configuration is a path":    {file("manifest.json", `[{"Config":"../../etc/passwd","Layers":[]}]`)},
		"too many files":             slices.Concat(many, []entry{file("index.json", index)}),
	} {
		path := filepath.Join(t.TempDir(), "archive.tar")
		if err := os.WriteFile(path, tarOf(t, entries...), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, what, path)
	}
}

// TestLoadLinkedLayers: a layer may be a link to an earlier one, as in older versions of docker save.
func TestLoadLinkedLayers(t *testing.T) {
	layer := tarOf(t, file("f", "body"))
	img := imageOf(t, layer, layer)
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "archive.tar")
	archive := tarOf(t, file("one/layer.tar", string(layer)),
		entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "two/layer.tar", Linkname: "../one/layer.tar"}},
		file("c.json", string(config)), file("manifest.json", `[{"Config":"c.json","Layers":["one/layer.tar","two/layer.tar"]}]`))
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := openStore(t, "run")
	if got := load(t, s, "docker-archive:"+path, "x"); read(t, s, got.ID, "f") != "body" {
		t.Error("wrong content")
	}
}

// TestLoadLayersAtTheTop: a link that is written relative to the top is resolved there.
func TestLoadLayersAtTheTop(t *testing.T) {
	layer := tarOf(t, file("f", "body"))
	config, err := imageOf(t, layer).RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "archive.tar")
	archive := tarOf(t, entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "one/layer.tar", Linkname: ".layer.tar"}},
		file(".layer.tar", string(layer)), file("c.json", string(config)),
		file("manifest.json", `[{"Config":"c.json","Layers":["one/layer.tar"]}]`))
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := openStore(t, "run")
	if got := load(t, s, "docker-archive:"+path, "x"); read(t, s, got.ID, "f") != "body" {
		t.Error("wrong content")
	}
}
