package local

import (
	"errors"
	"reflect"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestChoose: of several manifests the one for the guests is chosen, if there is one.
func TestChoose(t *testing.T) {
	of := func(os, arch, tag string) v1.Descriptor {
		d := v1.Descriptor{Platform: &v1.Platform{OS: os, Architecture: arch}, Annotations: map[string]string{}}
		if tag != "" {
			d.Annotations[v1.AnnotationRefName] = tag
		}
		return d
	}
	mine, arm, unknown := of("linux", "amd64", ""), of("linux", "arm64", ""), of("unknown", "unknown", "")
	unknown.Annotations[attestation] = "attestation-manifest"
	statement := v1.Descriptor{Annotations: map[string]string{attestation: "attestation-manifest"}}
	bare := v1.Descriptor{}
	signature := v1.Descriptor{ArtifactType: "application/vnd.example.signature"}
	for _, tt := range []struct {
		name  string
		list  []v1.Descriptor
		which string
		want  int // its index, or -1
	}{
		{"one", []v1.Descriptor{bare}, "", 0},
		{"one of another platform", []v1.Descriptor{arm}, "", 0}, // refused by name later
		{"two platforms", []v1.Descriptor{arm, mine}, "", 1},
		{"an attestation", []v1.Descriptor{mine, unknown}, "", 0},
		{"an attestation without a platform", []v1.Descriptor{statement, bare}, "", 1},
		{"a signature", []v1.Descriptor{signature, bare}, "", 1},
		{"two platforms of a tag", []v1.Descriptor{of("linux", "amd64", "1"), of("linux", "amd64", "2"), of("linux", "s390x", "2")}, "2", 1},
		{"two images", []v1.Descriptor{mine, mine}, "", -1},
		{"none for guests", []v1.Descriptor{arm, unknown}, "", -1},
		{"no such tag", []v1.Descriptor{mine, arm}, "3", -1},
		{"the first", []v1.Descriptor{arm, mine}, "@0", 0},
	} {
		got, err := choose(tt.list, tt.which)
		if tt.want < 0 {
			if !errors.Is(err, ErrWhich) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.list[tt.want]) {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
}
