package testimage_test

import (
	"archive/tar"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
)

func TestBusybox(t *testing.T) {
	t.Parallel()
	dir := testimage.Busybox(t)
	if again := testimage.Busybox(t); again != dir {
		t.Errorf("made twice: %s and %s", dir, again)
	}
	img := only(t, dir)
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	found := map[string]*tar.Header{}
	for _, head := range flatten(t, img) {
		found[head.Name] = head
	}
	for _, name := range []string{"bin/busybox", "bin/sh", "bin/true", "usr/bin/nslookup", "etc/passwd", "tmp", "root"} {
		if found[name] == nil {
			t.Errorf("no %s in the image", name)
		}
	}
	if h := found["home/demo"]; h == nil || h.Uid != 1000 {
		t.Errorf("home/demo is %+v, want it owned by 1000", h)
	}
	if a, b := digest(t, img), digest(t, testimage.BusyboxImage(t)); a != b {
		t.Errorf("the second image differs: %s, %s", a, b)
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	lower := []ociimage.Entry{
		ociimage.Dir("d", 0o755),
		ociimage.File("d/gone", 0o644, "x"),
		ociimage.File("kept", 0o4755, "y").Owner(7, 8).Xattr("user.k", "v"),
	}
	upper := []ociimage.Entry{ociimage.Whiteout("d/gone"), ociimage.Hardlink("link", "kept"), ociimage.CharDevice("null", 0o666, 1, 3)}
	img := only(t, testimage.Build(t, lower, upper))
	var got []string
	for _, h := range flatten(t, img) {
		got = append(got, h.Name)
		if h.Name == "kept" && (h.Mode != 0o4755 || h.Uid != 7 || h.Gid != 8 || h.PAXRecords["SCHILY.xattr.user.k"] != "v") {
			t.Errorf("kept is %+v", h)
		}
	}
	for _, name := range []string{"d", "kept", "link", "null"} {
		if !strings.Contains(strings.Join(got, " "), name) {
			t.Errorf("no %s in %v", name, got)
		}
	}
	if strings.Contains(strings.Join(got, " "), "gone") {
		t.Errorf("the whiteout did nothing: %v", got)
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	img := testimage.Image(t, v1.Config{Cmd: []string{"sh"}}, []ociimage.Entry{ociimage.File("f", 0o644, "x")})
	var broken atomic.Bool
	s := testimage.Registry(t, testimage.BasicAuth("ada", "secret"), testimage.Wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if broken.Load() {
				http.Error(w, "gone", http.StatusGone)
				return
			}
			next.ServeHTTP(w, r)
		})
	}))
	reference, want := s.Push(t, "team/app:1", img)
	ref, err := name.ParseReference(reference, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(ref, remote.WithAuth(&authn.Basic{Username: "ada", Password: "secret"}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, digest(t, got)); diff != "" {
		t.Error(diff)
	}
	if _, err := remote.Image(ref); err == nil {
		t.Error("pulled without a password")
	}
	broken.Store(true)
	if _, err := remote.Image(ref, remote.WithAuth(&authn.Basic{Username: "ada", Password: "secret"})); err == nil {
		t.Error("the wrapped handler was not asked")
	}
	if len(s.Requests()) == 0 {
		t.Error("no request was recorded")
	}
}

func only(t *testing.T, dir string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout's index: %+v, %v", manifest, err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func flatten(t *testing.T, img v1.Image) []*tar.Header {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	var heads []*tar.Header
	for entries := tar.NewReader(r); ; {
		head, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return heads
		}
		if err != nil {
			t.Fatal(err)
		}
		heads = append(heads, head)
	}
}

func digest(t *testing.T, img v1.Image) v1.Hash {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}
