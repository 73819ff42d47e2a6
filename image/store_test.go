package image

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

func randomText(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// archived writes an image as a docker archive and returns its path.
func archived(t *testing.T, tag, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	n, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(path, n, imageOf(t, tarOf(t, file("f", body)))); err != nil {
		t.Fatal(err)
	}
	return path
}

// emptyIndexWith returns an index with one image.
func emptyIndexWith(t *testing.T, body string) v1.ImageIndex {
	t.Helper()
	return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: imageOf(t, tarOf(t, file("f", body)))})
}

func load(t *testing.T, s *Store, source, name string) Image {
	t.Helper()
	img, err := s.Load(testContext(t), source, name, PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	noTemps(t, s)
	return img
}

func TestLoad(t *testing.T) {
	path := archived(t, "registry.test/demo:1", "body")
	dir := t.TempDir()
	if _, err := layout.Write(dir, emptyIndexWith(t, "body")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what, source, name, want string
	}{
		{"archive's own name", "docker-archive:" + path, "", "registry.test/demo:1"},
		{"given name", "docker-archive:" + path, "demo:2", "localhost/demo:2"},
		{"one of the archive", "docker-archive:" + path + ":registry.test/demo:1", "", "registry.test/demo:1"},
		{"layout", "oci:" + dir, "host.test/x", "host.test/x:latest"},
		{"layout without a name", "oci:" + dir, "", ""},
	} {
		t.Run(tc.what, func(t *testing.T) {
			s, _ := openStore(t, "run")
			img := load(t, s, tc.source, tc.name)
			if got := strings.Join(img.Names, " "); got != tc.want {
				t.Errorf("names %q, want %q", got, tc.want)
			}
			disk, err := s.OpenDisk(img.ID)
			if err != nil {
				t.Fatal(err)
			}
			defer disk.Close()
			if info, err := disk.Stat(); err != nil || info.Size() != slot.Size || info.Mode().Perm() != 0o600 {
				t.Errorf("disk %v, %v", info, err)
			}
			if found, err := s.Resolve(img.ID[:8]); err != nil || found.ID != img.ID {
				t.Errorf("by prefix: %v, %v", found.ID, err)
			}
		})
	}
}

// TestResolveRemoved: an image that is being removed is not found, at any stage of its removal.
func TestResolveRemoved(t *testing.T) {
	s, _ := openStore(t, "run")
	img := load(t, s, "docker-archive:"+archived(t, "registry.test/demo:1", "body"), "")
	if err := os.RemoveAll(s.path(img.ID)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"registry.test/demo:1", img.ID} {
		if _, err := s.Resolve(name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := s.List(); err != nil || len(all) > 0 {
		t.Errorf("listed: %v, %v", all, err)
	}
}

func TestLoadFails(t *testing.T) {
	cut := archived(t, "registry.test/demo:1", randomText(100000))
	if err := os.Truncate(cut, 60000); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]error{
		"docker-archive:/nonexistent": os.ErrNotExist, "docker-archive:": ErrInvalid, "tar:x": ErrInvalid,
		"docker-archive:" + cut: nil, "oci:" + t.TempDir(): nil, "oci-archive:/dev/null": nil,
	} {
		s, _ := openStore(t, "run")
		_, err := s.Load(testContext(t), source, "x", PullOptions{})
		if err == nil || want != nil && !errors.Is(err, want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", source, err)
		}
		noTemps(t, s)
	}
}

// TestCollect covers the life of references and pins of two instances.
func TestCollect(t *testing.T) {
	ctx := testContext(t)
	s, roots := openStore(t, "run")
	cri := reopen(t, roots, "cri")
	path := archived(t, "registry.test/demo:1", "one")
	img := load(t, s, "docker-archive:"+path, "")
	load(t, cri, "docker-archive:"+path, "")
	there := func(want bool) {
		t.Helper()
		f, err := s.OpenDisk(img.ID)
		if err == nil {
			f.Close()
		}
		if (err == nil) != want {
			t.Errorf("on disk: %v, want %v", err == nil, want)
		}
	}
	step := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	step(s.Remove(ctx, "registry.test/demo:1", RemoveOptions{}), nil)
	there(true) // cri has it
	step(s.Remove(ctx, img.ID, RemoveOptions{}), ErrNotFound)
	step(cri.Pin(ctx, img.ID, "cri/pod"), nil)
	step(cri.Remove(ctx, img.ID[:12], RemoveOptions{}), ErrInUse)
	step(cri.Remove(ctx, img.ID[:12], RemoveOptions{Force: true}), nil)
	there(true) // the sandbox has it
	reopen(t, roots, "run")
	there(true)
	step(s.UnpinAll(ctx, "cri/pod"), nil)
	there(false)
	step(s.Unpin(ctx, img.ID, "cri/pod"), nil)
	step(s.Pin(ctx, img.ID, "x"), ErrNotFound)

	// A name that moves leaves its old image without references.
	img = load(t, s, "docker-archive:"+path, "")
	load(t, s, "docker-archive:"+archived(t, "registry.test/demo:1", "two"), "")
	there(false)
	if list, err := s.List(); err != nil || len(list) != 1 {
		t.Errorf("list %v, %v", list, err)
	}
}

// TestOpenReaps: Open removes the remains of a killed process, and keeps a running one's files.
func TestOpenReaps(t *testing.T) {
	s, roots := openStore(t, "run")
	img := load(t, s, "docker-archive:"+archived(t, "registry.test/demo:1", "one"), "")
	living, err := s.newStage()
	if err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]bool{
		"1234": true, "1234.lock": false, convertPrefix + img.ID: false, strings.Repeat("b", 64) + goneExt: true,
		strings.Repeat("c", 64) + goneExt: true, convertPrefix + strings.Repeat("d", 64): false, "zzzz": true, "zzzz.lock": false,
	} {
		if dir {
			err = os.MkdirAll(s.path("tmp", name, "image"), 0o700)
		} else {
			err = os.WriteFile(s.path("tmp", name), nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// An image that was published, but has no name any more.
	orphan := strings.Repeat("a", 64)
	if err := os.MkdirAll(s.path(orphan), 0o700); err != nil {
		t.Fatal(err)
	}
	reopen(t, roots, "run")
	if _, err := os.Stat(living.dir); err != nil {
		t.Error("the living stage is gone")
	}
	if err := living.remove(); err != nil {
		t.Error(err)
	}
	noTemps(t, s)
	if ids, err := s.ids(); err != nil || len(ids) != 1 || ids[0] != img.ID {
		t.Errorf("images %v, %v", ids, err)
	}
}

// TestDamagedReference: a truncated reference is an error, and its image is not collected.
func TestDamagedReference(t *testing.T) {
	s, roots := openStore(t, "run")
	img := load(t, s, "docker-archive:"+archived(t, "registry.test/demo:1", "one"), "")
	if err := os.Truncate(s.refPath("registry.test/demo:1", img.ID), 10); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(roots, "run"); !errors.Is(err, atomicfile.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if !s.exists(img.ID) {
		t.Error("the image is gone")
	}
}

func TestResolve(t *testing.T) {
	s, _ := openStore(t, "run")
	img := load(t, s, "docker-archive:"+archived(t, "docker.io/library/busybox:latest", "one"), "")
	local := load(t, s, "docker-archive:"+archived(t, "registry.test/x:1", "two"), "thing:demo")
	for text, want := range map[string]string{
		"busybox": img.ID, "docker.io/busybox": img.ID, "docker.io/library/busybox:latest": img.ID, "sha256:" + img.ID: img.ID,
		"thing:demo": local.ID, "localhost/thing:demo": local.ID,
	} {
		if got, err := s.Resolve(text); err != nil || got.ID != want {
			t.Errorf("%s: %s, %v", text, got.ID, err)
		}
	}
	for text, want := range map[string]error{
		"busybox:other": ErrNotFound, "thing": ErrNotFound, "UPPER": ErrInvalid, "": ErrInvalid, "../../etc": ErrInvalid, "fff": ErrNotFound,
	} {
		if _, err := s.Resolve(text); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}
