package image

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/bulkhead-project/bulkhead/image/convert"
)

// lying replaces the converter by a compromised process: it runs the script, and then reports that the disk is
// finished.
func lying(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	reply := `{"size":4096}`
	script = fmt.Sprintf("#!/bin/sh\n%s\nprintf '\\000\\000\\000\\%03o%s'\n", script, len(reply), reply)
	if err := os.WriteFile(filepath.Join(dir, convert.Program), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BULKHEAD_LIBEXEC", dir)
}

// underConfig has an image's layers with the configuration of another image.
type underConfig struct {
	linkedImage
	config v1.Image
}

func (u underConfig) ConfigName() (v1.Hash, error)            { return u.config.ConfigName() }
func (u underConfig) ConfigFile() (*v1.ConfigFile, error)     { return u.config.ConfigFile() }
func (u underConfig) RawConfigFile() ([]byte, error)          { return u.config.RawConfigFile() }
func (u underConfig) LayerByDiffID(v1.Hash) (v1.Layer, error) { return nil, os.ErrNotExist }

// TestConverterWritesItsOwnImage: a converter that one image's layers have taken over cannot make the disk of another
// image, even with that image's configuration.
func TestConverterWritesItsOwnImage(t *testing.T) {
	victim := imageOf(t, tarOf(t, file("f", "good")))
	evil := imageOf(t, tarOf(t, file("f", "evil")))
	m, err := evil.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	of, err := victim.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	m = m.DeepCopy()
	m.Config = of.Config
	host := startRegistry(t, nil)
	push(t, host+"/victim:1", victim)
	push(t, host+"/evil:1", underConfig{linkedImage{evil, m}, victim})
	saved, _ := written(t, underConfig{linkedImage{evil, m}, victim})
	s, _ := openStore(t, "run")
	libexec := os.Getenv("BULKHEAD_LIBEXEC")
	lying(t, "cat >/dev/null; printf poison >&3")
	poisoned, err := s.Pull(testContext(t), host+"/evil:1", PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if loaded := load(t, s, "oci:"+saved, "evil"); loaded.ID != poisoned.ID {
		t.Errorf("the same content has the ids %s and %s", loaded.ID, poisoned.ID)
	}
	t.Setenv("BULKHEAD_LIBEXEC", libexec)
	got, err := s.Pull(testContext(t), host+"/victim:1", PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.ID == poisoned.ID || read(t, s, got.ID, "f") != "good" {
		t.Errorf("the image has the disk of another: %s, %s", got.ID, poisoned.ID)
	}
}

// TestConverterCannotHurry: a registry's false layer does not become a disk, even if the converter that it took over
// reports success at once.
func TestConverterCannotHurry(t *testing.T) {
	img := imageOf(t, tarOf(t, file("f", randomText(1<<20))))
	d := firstLayer(t, img)
	var spoil atomic.Bool
	release := make(chan struct{})
	defer close(release)
	host := startRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if spoil.Load() && isBlob(r, d) {
				fmt.Fprint(w, strings.Repeat("evil", 1000))
				_ = http.NewResponseController(w).Flush()
				select {
				case <-release:
				case <-r.Context().Done():
				}
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	push(t, host+"/demo:1", img)
	spoil.Store(true)
	libexec := os.Getenv("BULKHEAD_LIBEXEC")
	for what, script := range map[string]string{
		"reads nothing":    "printf poison >&3",
		"reads a part":     "head -c 1000 >/dev/null; printf poison >&3",
		"closes its input": "exec <&-; printf poison >&3",
	} {
		s, _ := openStore(t, "run")
		lying(t, script)
		if _, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{}); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
		if ids, err := s.ids(); err != nil || len(ids) > 0 {
			t.Errorf("%s: images %v, %v", what, ids, err)
		}
		noTemps(t, s)
	}
	t.Setenv("BULKHEAD_LIBEXEC", libexec)
	spoil.Store(false)
	s, _ := openStore(t, "run")
	got, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{})
	if err != nil || !strings.HasPrefix(read(t, s, got.ID, "f"), randomText(100)) {
		t.Error(err)
	}
}
