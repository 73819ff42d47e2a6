package layout

import (
	"errors"
	"testing"

	"github.com/containerd/containerd/api/types"
	"github.com/google/go-cmp/cmp"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

func TestRootfsIsWhatWasPrinted(t *testing.T) {
	want := []Part{
		{Of: containerv1.Image{ID: "sha256:1"}, File: "disk-0"},
		{Of: containerv1.Image{ID: "sha256:2"}},
		{Of: containerv1.Share{Name: "srv"}, File: "share-1"},
		{Of: containerv1.Block{Name: "sdb"}, File: "block=2"},
		{Of: containerv1.Block{Name: "sdc", FS: containerv1.FSExt4, ReadOnly: true}, File: "f"},
	}
	mounts := EncodeRootfs(want)
	got, err := ParseRootfs(mounts)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The strings for an image are those of all earlier engines.
	if m := mounts[0]; m.Type != "bulkhead-disk" || m.Source != "sha256:1" || m.Options[0] != "file=disk-0" {
		t.Errorf("an image is encoded as %v", m)
	}
}

func TestParseRootfsRefuses(t *testing.T) {
	for name, mounts := range map[string][]*types.Mount{
		"no root":           nil,
		"a host's overlay":  {{Type: "overlay", Source: "overlay"}},
		"an unknown option": {{Type: "bulkhead-disk", Source: "i", Options: []string{"ro"}}},
		"a file system":     {{Type: "bulkhead-block", Source: "i", Options: []string{"fs=xfs"}}},
		"fs of an image":    {{Type: "bulkhead-disk", Source: "i", Options: []string{"fs=ext4"}}},
		"no name of a file": {{Type: "bulkhead-disk", Source: "i", Options: []string{"file="}}},
		"two files":         {{Type: "bulkhead-disk", Source: "i", Options: []string{"file=a", "file=b"}}},
		"a second of none":  {{Type: "bulkhead-disk", Source: "i"}, {}},
	} {
		if parts, err := ParseRootfs(mounts); !errors.Is(err, containerv1.ErrInvalid) {
			t.Errorf("%s: %v, %v", name, parts, err)
		}
	}
}
