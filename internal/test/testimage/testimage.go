// Package testimage provides images for tests: busybox, images from tar entries, and a registry on loopback to pull
// them from. Package ociimage creates entries.
package testimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
)

// layoutVersion is raised when busybox.Image builds a different image from the same binary, so that cached images are
// not used.
const layoutVersion = "2"

// Busybox returns the directory of an OCI layout with the busybox image. It is built once and shared by every test of
// the user, in every process: it must not be written.
func Busybox(t testing.TB) string {
	t.Helper()
	dir, err := cachedBusybox()
	if err != nil {
		t.Fatalf("make the busybox image: %v", err)
	}
	return dir
}

var cachedBusybox = sync.OnceValues(func() (string, error) {
	program, err := os.ReadFile(busybox.Binary)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(layoutVersion), program...))
	base := filepath.Join(os.TempDir(), "bulkhead-test-"+strconv.Itoa(os.Geteuid()))
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	dir := filepath.Join(base, "busybox-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err == nil {
		return dir, nil
	}
	img, err := busybox.Image(context.Background(), busybox.Binary)
	if err != nil {
		return "", err
	}
	// Other processes may build it concurrently: the first to rename wins.
	tmp, err := os.MkdirTemp(base, "making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	made := filepath.Join(tmp, "layout")
	if err := ociimage.WriteLayout(made, img); err != nil {
		return "", err
	}
	if err := os.Rename(made, dir); err != nil {
		if _, there := os.Stat(filepath.Join(dir, "index.json")); there != nil {
			return "", err
		}
	}
	return dir, nil
})

// BusyboxImage returns the busybox image itself.
func BusyboxImage(t testing.TB) v1.Image {
	t.Helper()
	img, err := busybox.Image(t.Context(), busybox.Binary)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// Image builds an image from layers, the lowest first.
func Image(t testing.TB, config v1.Config, layers ...[]ociimage.Entry) v1.Image {
	t.Helper()
	img, err := ociimage.New(config, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// Build builds an image from layers, the lowest first, in an OCI layout. It returns the layout's directory, which is
// removed when the test ends.
func Build(t testing.TB, layers ...[]ociimage.Entry) string {
	t.Helper()
	return layout(t, Image(t, v1.Config{}, layers...))
}

// layout writes img as an OCI layout, and returns its directory, which is removed when the test ends.
func layout(t testing.TB, img v1.Image) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	if err := ociimage.WriteLayout(dir, img); err != nil {
		t.Fatal(err)
	}
	return dir
}
