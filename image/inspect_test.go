package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
)

// TestManyLayers: an image may have as many layers as builders make, even empty ones, but no more. Each must have a
// digest and a size.
func TestManyLayers(t *testing.T) {
	registry, _ := places(t)
	good := manifest.Schema2Descriptor{Digest: digest.FromString("layer"), Size: 0}
	for _, tc := range []struct {
		what   string
		layers []manifest.Schema2Descriptor
		want   error
	}{
		{what: "none"},
		{what: "the most", layers: slices.Repeat([]manifest.Schema2Descriptor{good}, maxLayers)},
		{what: "more", layers: slices.Repeat([]manifest.Schema2Descriptor{good}, maxLayers+1), want: ErrInvalid},
		{what: "no size", layers: []manifest.Schema2Descriptor{{Digest: good.Digest, Size: -1}}, want: ErrInvalid},
		{what: "no digest", layers: []manifest.Schema2Descriptor{{Digest: "md5:x"}}, want: ErrInvalid},
	} {
		rootFS := v1.RootFS{Type: "layers", DiffIDs: slices.Repeat([]digest.Digest{digest.FromString("plain")}, len(tc.layers))}
		config, err := json.Marshal(v1.Image{RootFS: rootFS})
		if err != nil {
			t.Fatal(err)
		}
		m := manifest.Schema2FromComponents(manifest.Schema2Descriptor{Digest: digest.FromBytes(config)}, tc.layers)
		r := sourceImage{src: source{ref: registry, in: bytes.NewReader(config)}}
		if err := r.read(t.Context(), m); !errors.Is(err, tc.want) || err == nil && len(r.layers) != len(tc.layers) {
			t.Errorf("%s: %d layers, %v, want %v", tc.what, len(r.layers), err, tc.want)
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

// TestOtherPlatforms: an image must be for the guests' platform, or name none.
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
