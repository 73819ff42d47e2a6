package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// TestMain keeps the user's own configuration out of the tests. It allows plain HTTP to loopback, where every test's
// registry is.
func TestMain(m *testing.M) {
	if os.Getenv("IMAGE_TEST_DATA") != "" { // a child of TestKilled, with the test's environment
		os.Exit(m.Run())
	}
	own := os.Getenv("HOME")
	home, err := os.MkdirTemp("", "image-test-*")
	if err != nil {
		log.Fatal(err)
	}
	conf := filepath.Join(home, "registries.conf")
	text := "short-name-mode = \"permissive\"\n[[registry]]\nlocation = \"127.0.0.1\"\ninsecure = true\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	for k, v := range map[string]string{
		"HOME": home, "XDG_CONFIG_HOME": home, "XDG_RUNTIME_DIR": home, "REGISTRY_AUTH_FILE": filepath.Join(home, "auth.json"),
		"CONTAINERS_REGISTRIES_CONF": conf,
	} {
		os.Setenv(k, v)
	}
	// Package convert finds it there, built from the tested sources.
	os.Setenv("BULKHEAD_LIBEXEC", home)
	build := testgo.Command(context.Background(), "build", "-o", filepath.Join(home, convert.Program), "../cmd/"+convert.Program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "HOME="+own)
	if out, err := build.CombinedOutput(); err != nil {
		log.Fatalf("build %s: %v\n%s", convert.Program, err, out)
	}
	code := m.Run()
	os.RemoveAll(home)
	os.Exit(code)
}

// entry is one member of a test layer.
type entry struct {
	tar.Header
	body string
}

func file(name, body string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body))}, body}
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if e.ModTime.IsZero() {
			e.ModTime = time.Unix(1700000000, 0)
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// imageOf builds an image of gzipped layers.
func imageOf(t testing.TB, layers ...[]byte) v1.Image {
	t.Helper()
	img := empty.Image
	for _, data := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", "amd64"
	cf.Config.Cmd = []string{"/bin/true"}
	cf.Config.User = "nobody"
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		t.Fatal(err)
	}
	return img
}

// startRegistry serves an empty registry on loopback, through wrap.
func startRegistry(t testing.TB, wrap func(http.Handler) http.Handler) (host string) {
	t.Helper()
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		h = wrap(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

func push(t testing.TB, ref string, img v1.Image, opts ...remote.Option) {
	t.Helper()
	n, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(n, img, opts...); err != nil {
		t.Fatal(err)
	}
}

func openStore(t testing.TB, instance string) (*Store, dirs.Roots) {
	t.Helper()
	return openIn(t, t.TempDir(), instance)
}

// smallStore returns a store on a file system of its own, of 80 MiB, mounted on base.
func smallStore(t testing.TB) (s *Store, base string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a small file system of its own needs root")
	}
	base = t.TempDir()
	if err := syscall.Mount("tmpfs", base, "tmpfs", 0, "size=80m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { testfs.Unmount(t, base) })
	s, _ = openIn(t, base, "run")
	return s, base
}

func openIn(t testing.TB, base, instance string) (*Store, dirs.Roots) {
	t.Helper()
	roots := dirs.Roots{Data: filepath.Join(base, "data"), State: filepath.Join(base, "state")}
	if err := roots.Ensure(); err != nil {
		t.Fatal(err)
	}
	return reopen(t, roots, instance), roots
}

func reopen(t testing.TB, roots dirs.Roots, instance string) *Store {
	t.Helper()
	s, err := Open(roots, instance)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// noTemps fails the test if a pull has left files.
func noTemps(t testing.TB, s *Store) {
	t.Helper()
	left, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		t.Errorf("left behind: tmp/%s", e.Name())
	}
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
