package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/erofs/go-erofs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"go.podman.io/image/v5/pkg/sysregistriesv2"

	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// read returns a file's content from an image's disk.
func read(t *testing.T, s *Store, id, path string) string {
	t.Helper()
	disk, err := s.OpenDisk(id)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	fsys, err := erofs.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	data, err := fs.ReadFile(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// layered is an image with one given layer. Its uncompressed digest is plain's.
func layered(t *testing.T, data, plain []byte, kind types.MediaType) v1.Image {
	t.Helper()
	img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: diffIDLayer{static.NewLayer(data, kind), plain}, MediaType: kind})
	if err != nil {
		t.Fatal(err)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", "amd64"
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		t.Fatal(err)
	}
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
}

type diffIDLayer struct {
	v1.Layer
	plain []byte
}

func (l diffIDLayer) DiffID() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(l.plain))
	return h, err
}

func zstdOf(t *testing.T, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestCompressions(t *testing.T) {
	plain := tarOf(t, file("f", "body"+randomText(300000)))
	for name, tc := range map[string]struct {
		data []byte
		kind types.MediaType
	}{
		"uncompressed":        {plain, types.OCIUncompressedLayer},
		"zstd":                {zstdOf(t, plain), types.OCILayerZStd},
		"zstd that says gzip": {zstdOf(t, plain), types.OCILayer},
		"not zstd":            {plain, types.OCILayerZStd},
	} {
		t.Run(name, func(t *testing.T) {
			host := startRegistry(t, nil)
			push(t, host+"/demo:1", layered(t, tc.data, plain, tc.kind))
			s, _ := openStore(t, "run")
			img, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(read(t, s, img.ID, "f"), "body") {
				t.Error("wrong content")
			}
		})
	}
}

// TestLayerIsNotItsDiffID: the content must have the digest in the configuration.
func TestLayerIsNotItsDiffID(t *testing.T) {
	plain := tarOf(t, file("f", "body"))
	for name, data := range map[string][]byte{
		"other content":   zstdOf(t, tarOf(t, file("f", "evil"))),
		"cut compression": zstdOf(t, tarOf(t, file("f", randomText(300000))))[:200000],
		"garbage":         []byte("\x1f\x8bgarbage"),
		"nothing":         {},
		"bytes behind it": append(zstdOf(t, plain), zstdOf(t, []byte("more"))...),
	} {
		t.Run(name, func(t *testing.T) {
			host := startRegistry(t, nil)
			push(t, host+"/demo:1", layered(t, data, plain, types.OCILayerZStd))
			s, _ := openStore(t, "run")
			_, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{})
			t.Log(err)
			if err == nil || !errors.Is(err, ErrDigest) && !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v", err)
			}
			noTemps(t, s)
		})
	}
}

// TestPlatform: an index provides the image for the guests' platform, and images of other platforms are refused.
func TestPlatform(t *testing.T) {
	good := imageOf(t, tarOf(t, file("f", "amd64")))
	other := imageOf(t, tarOf(t, file("f", "arm64")))
	cf, err := other.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.Architecture = "arm64"
	if other, err = mutate.ConfigFile(other, cf); err != nil {
		t.Fatal(err)
	}
	host := startRegistry(t, nil)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: good, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	ref, err := name.ParseReference(host+"/multi:1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	push(t, host+"/other:1", other)
	s, _ := openStore(t, "run")
	img, err := s.Pull(testContext(t), host+"/multi:1", PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, img.ID, "f"); got != "amd64" {
		t.Errorf("got the image for %s", got)
	}
	if len(img.Digests) != 2 {
		t.Errorf("digests %v", img.Digests)
	}
	for _, d := range img.Digests {
		if again, err := s.Pull(testContext(t), d, PullOptions{}); err != nil || again.ID != img.ID {
			t.Errorf("by digest: %v", err)
		}
		if found, err := s.Resolve(d); err != nil || found.ID != img.ID {
			t.Errorf("by digest: %v", err)
		}
	}
	if _, err := s.Pull(testContext(t), host+"/other:1", PullOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("another platform: %v", err)
	}
}

// TestMirror: registries.conf redirects a registry's name to its mirror.
func TestMirror(t *testing.T) {
	host := startRegistry(t, nil)
	push(t, host+"/copy/demo:1", imageOf(t, tarOf(t, file("f", "mirrored"))))
	conf := filepath.Join(t.TempDir(), "registries.conf")
	text := fmt.Sprintf("unqualified-search-registries = [\"unreachable.test\", \"origin.test\"]\nshort-name-mode = \"disabled\"\n"+
		"[[registry]]\nlocation = \"origin.test\"\nblocked = false\n[[registry.mirror]]\nlocation = %q\ninsecure = true\n"+
		"[[registry]]\nlocation = \"unreachable.test\"\nblocked = true\n", host+"/copy")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONTAINERS_REGISTRIES_CONF", conf)
	t.Cleanup(sysregistriesv2.InvalidateCache)
	s, _ := openStore(t, "run")
	for _, name := range []string{"origin.test/demo:1", "demo:1"} {
		img, err := s.Pull(testContext(t), name, PullOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(img.Names, " "); got != "origin.test/demo:1" {
			t.Errorf("%s: names %s", name, got)
		}
	}
	if _, err := s.Resolve("demo:1"); err != nil {
		t.Error(err)
	}
}

func TestPolicyFile(t *testing.T) {
	host := startRegistry(t, nil)
	push(t, host+"/demo:1", imageOf(t, tarOf(t, file("f", "x"))))
	for text, want := range map[string]error{
		`{"default":[{"type":"insecureAcceptAnything"}]}`: nil,
		`{"default":[{"type":"reject"}]}`:                 ErrPolicy,
		`{"default":[`:                                    ErrPolicy,
	} {
		path := filepath.Join(t.TempDir(), "policy.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("CONTAINERS_POLICY_JSON", path)
		s, _ := openStore(t, "run")
		if _, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{}); !errors.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
		noTemps(t, s)
	}
}

// TestDiskFull pulls an image that does not fit on the store's file system.
func TestDiskFull(t *testing.T) {
	s, _ := smallStore(t)
	host := startRegistry(t, nil)
	push(t, host+"/bomb:1", imageOf(t, tarOf(t, file("f", strings.Repeat("compresses well ", 2<<20)))))
	push(t, host+"/large:1", imageOf(t, tarOf(t, file("f", randomText(20<<20)))))
	// Each of its halves would fit beside the reserve.
	push(t, host+"/both:1", imageOf(t, tarOf(t, file("f", randomText(10<<20)))))
	for _, ref := range []string{"/bomb:1", "/large:1", "/both:1"} {
		_, err := s.Pull(testContext(t), host+ref, PullOptions{})
		t.Log(err)
		if !errors.Is(err, ErrNoSpace) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v", err)
		}
		noTemps(t, s)
	}
}

// converters returns the converter processes of this test.
func converters(t *testing.T) (pids []int) {
	t.Helper()
	own := filepath.Join(os.Getenv("BULKHEAD_LIBEXEC"), convert.Program)
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && exe == own {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// awaitConverters waits until there are some, or none.
func awaitConverters(t *testing.T, some bool) []int {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		pids := converters(t)
		if len(pids) > 0 == some {
			return pids
		}
		if time.Now().After(end) {
			t.Fatalf("processes that read images: %v", pids)
		}
	}
}

// TestConverterKilled: if a converter dies, only its own pull fails, at once and with a reason, although the registry
// is silent.
func TestConverterKilled(t *testing.T) {
	img := imageOf(t, tarOf(t, file("f", randomText(1<<20))))
	d := firstLayer(t, img)
	asked, release := make(chan struct{}, 8), make(chan struct{})
	var hold atomic.Bool
	hold.Store(true)
	host := startRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isBlob(r, d) && hold.Load() {
				asked <- struct{}{}
				<-release
			}
			next.ServeHTTP(w, r)
		})
	})
	defer close(release)
	push(t, host+"/demo:1", img)
	s, _ := openStore(t, "run")
	pulled := make(chan error, 1)
	go func() {
		_, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{})
		pulled <- err
	}()
	<-asked
	for _, pid := range awaitConverters(t, true) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	err := <-pulled
	if err == nil || !strings.Contains(err.Error(), "killed") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	noTemps(t, s)
	hold.Store(false)
	if _, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{}); err != nil {
		t.Error(err)
	}
}

// TestPullCancelled: the converter ends with the caller.
func TestPullCancelled(t *testing.T) {
	img := imageOf(t, tarOf(t, file("f", randomText(1<<20))))
	d := firstLayer(t, img)
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	host := startRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isBlob(r, d) {
				cancel()
				<-release
			}
			next.ServeHTTP(w, r)
		})
	})
	defer close(release)
	push(t, host+"/demo:1", img)
	s, _ := openStore(t, "run")
	if _, err := s.Pull(ctx, host+"/demo:1", PullOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := converters(t); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	noTemps(t, s)
}

// TestKilled kills a process during a pull; the next process finds no remains.
func TestKilled(t *testing.T) {
	if data := os.Getenv("IMAGE_TEST_DATA"); data != "" {
		s := reopen(t, dirs.Roots{Data: data, State: data}, "run")
		_, _ = s.Pull(testContext(t), os.Getenv("IMAGE_TEST_REF"), PullOptions{})
		return
	}
	s, roots := openStore(t, "run")
	img := imageOf(t, tarOf(t, file("f", "body")))
	d := firstLayer(t, img)
	started, release := make(chan struct{}, 8), make(chan struct{})
	host := startRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isBlob(r, d) {
				select {
				case <-release:
				default:
					started <- struct{}{}
					<-release
				}
			}
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/demo:1", img)
	child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), "IMAGE_TEST_DATA="+roots.Data, "IMAGE_TEST_REF="+host+"/demo:1")
	child.Stdout, child.Stderr = io.Discard, io.Discard
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-started:
	case <-time.After(20 * time.Second):
		t.Error("the child never pulled")
	}
	if left, err := os.ReadDir(s.path("tmp")); err != nil || len(left) == 0 {
		t.Errorf("the child is at work, but tmp holds %v, %v", left, err)
	}
	awaitConverters(t, true)
	if err := child.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = child.Wait()
	close(release)
	awaitConverters(t, false)
	noTemps(t, reopen(t, roots, "run"))
	if _, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{}); err != nil {
		t.Error(err)
	}
}
