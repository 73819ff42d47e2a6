package blocks

import (
	"testing"

	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

// TestVolumes checks that the disk of a named volume is available by its name and kind, but not by its path.
func TestVolumes(t *testing.T) {
	data := realDir(t)
	volumes := named.In(data)
	for name, kind := range map[string]named.Kind{"fs": named.Disk, "bare": named.Block, "files": named.Shared} {
		if _, err := volumes.Create(t.Context(), named.Volume{Name: name, Kind: kind, Bytes: 1}); err != nil {
			t.Fatal(err)
		}
	}
	s := New(has{}, volumes, place.Rules{Own: []string{data}})
	for _, tt := range []struct {
		block containerv1.Block
		code  codes.Code
		at    string
	}{
		{block: containerv1.Block{Name: "volume:fs", FS: containerv1.FSExt4}, at: volumes.Image("fs")},
		{block: containerv1.Block{Name: "volume:bare", Access: "rwm"}, at: volumes.Image("bare")},
		{block: containerv1.Block{Name: "volume:fs", Access: "rwm"}, code: codes.FailedPrecondition},
		{block: containerv1.Block{Name: "volume:bare", FS: containerv1.FSExt4}, code: codes.FailedPrecondition},
		{block: containerv1.Block{Name: "volume:files", FS: containerv1.FSExt4}, code: codes.FailedPrecondition},
		{block: containerv1.Block{Name: "volume:none", FS: containerv1.FSExt4}, code: codes.NotFound},
		{block: containerv1.Block{Name: "volume:../fs", FS: containerv1.FSExt4}, code: codes.InvalidArgument},
		{block: containerv1.Block{Name: volumes.Image("fs"), FS: containerv1.FSExt4}, code: codes.PermissionDenied},
		{block: containerv1.Block{Name: volumes.Image("bare"), Access: "rwm"}, code: codes.PermissionDenied},
	} {
		path, err := s.find(t.Context(), tt.block)
		if path != tt.at && err == nil || (err == nil) != (tt.code == codes.OK) || err != nil && grpccode.Of(err) != tt.code {
			t.Errorf("%+v: %s, %v", tt.block, path, err)
		}
	}
}
