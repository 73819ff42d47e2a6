package image

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// TestManyLayers: an image has as many layers as builders make, one of nothing
// included, and no more.
func TestManyLayers(t *testing.T) {
	empty := layered(t, nil, nil, types.OCIUncompressedLayer)
	most := imageOf(t, slices.Repeat([][]byte{tarOf(t, file("f", "body"))}, maxLayers)...)
	tooMany := imageOf(t, slices.Repeat([][]byte{tarOf(t, file("f", "body"))}, maxLayers+1)...)
	host := startRegistry(t, nil)
	push(t, host+"/empty:1", empty)
	push(t, host+"/most:1", most)
	push(t, host+"/many:1", tooMany)
	s, _ := openStore(t, "run")
	for name, want := range map[string]error{"empty": nil, "most": nil, "many": ErrInvalid} {
		if _, err := s.Pull(testContext(t), host+"/"+name+":1", PullOptions{}); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFirstSchema: a manifest of Docker's first schema is refused by name.
func TestFirstSchema(t *testing.T) {
	for _, kind := range []types.MediaType{types.DockerManifestSchema1, types.DockerManifestSchema1Signed} {
		var on atomic.Bool
		host := startRegistry(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if on.Load() && strings.Contains(r.URL.Path, "/manifests/") {
					w.Header().Set("Content-Type", string(kind))
					fmt.Fprint(w, `{"schemaVersion":1,"name":"demo","tag":"1","fsLayers":[],"history":[]}`)
					return
				}
				next.ServeHTTP(w, r)
			})
		})
		push(t, host+"/demo:1", imageOf(t, tarOf(t, file("f", "x"))))
		on.Store(true)
		s, _ := openStore(t, "run")
		_, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "first schema") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestOtherPlatforms: an image is for the guests' platform or says nothing of one.
func TestOtherPlatforms(t *testing.T) {
	host := startRegistry(t, nil)
	s, _ := openStore(t, "run")
	for i, tc := range []struct {
		os, arch string
		want     error
	}{
		{"linux", "amd64", nil},
		{"", "amd64", nil},
		{"linux", "", nil},
		{"windows", "amd64", ErrInvalid},
		{"linux", "arm64", ErrInvalid},
		{"windows", "", ErrInvalid},
		{"", "arm64", ErrInvalid},
	} {
		img := imageOf(t, tarOf(t, file("f", "x")))
		cf, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		cf = cf.DeepCopy()
		cf.OS, cf.Architecture = tc.os, tc.arch
		if img, err = mutate.ConfigFile(img, cf); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%s/demo:%d", host, i)
		push(t, name, img)
		if _, err := s.Pull(testContext(t), name, PullOptions{}); !errors.Is(err, tc.want) {
			t.Errorf("%s/%s: %v, want %v", tc.os, tc.arch, err, tc.want)
		}
	}
}
