package shares

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

// TestVolumes checks that a named volume is available only by its name, without its neighbours or the targets of
// its links.
func TestVolumes(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	volumes := named.In(filepath.Join(dir, "link"))
	for name, kind := range map[string]named.Kind{"files": named.Shared, "disk": named.Disk} {
		if _, err := volumes.Create(t.Context(), named.Volume{Name: name, Kind: kind, Bytes: 1}); err != nil {
			t.Fatal(err)
		}
	}
	files := filepath.Join(data, "volumes/files/files")
	for link, to := range map[string]string{"out": "/etc", "up": "..", "in": "."} {
		if err := os.Symlink(to, filepath.Join(files, link)); err != nil {
			t.Fatal(err)
		}
	}
	s := New(nil, Host{Rules: place.Rules{Own: []string{filepath.Join(dir, "link")}}, Volumes: volumes})
	for _, tt := range []struct {
		name, part string
		code       codes.Code
		at         string
	}{
		{name: "volume:files", at: files},
		{name: "volume:files", part: "a/b", at: files + "/a/b"},
		{name: "volume:files", part: "in/c", at: files + "/c"},
		{name: "volume:files", part: "out", code: codes.InvalidArgument},
		{name: "volume:files", part: "up/volume.json", code: codes.InvalidArgument},
		{name: "volume:files", part: "../volume.json", code: codes.InvalidArgument},
		{name: "volume:disk", code: codes.FailedPrecondition},
		{name: "volume:none", code: codes.NotFound},
		{name: "volume:../files", code: codes.InvalidArgument},
		{name: "volume:", code: codes.InvalidArgument},
		{name: files, code: codes.PermissionDenied},
		{name: filepath.Dir(files), code: codes.PermissionDenied},
		{name: filepath.Join(dir, "link/volumes/files/files"), code: codes.PermissionDenied},
		{name: filepath.Join(data, "volumes/disk/disk.img"), code: codes.PermissionDenied},
	} {
		all, err := s.Of(t.Context(), store.Staging{}, nil, []containerv1.Mount{{Source: containerv1.Share{Name: tt.name}, SubPath: tt.part}})
		if (err == nil) != (tt.code == codes.OK) || err != nil && grpccode.Of(err) != tt.code || err == nil && all[0].Path != tt.at {
			t.Errorf("%s, %s: %+v, %v", tt.name, tt.part, all, err)
		}
		if err != nil {
			continue
		}
		p, err := s.host.reopen(t.Context(), all[0])
		if err != nil || p.Path != tt.at {
			t.Errorf("%s, %s again: %v", tt.name, tt.part, err)
		}
		if info, err := os.Stat(tt.at); err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("%s, %s: %v, %v", tt.name, tt.part, info, err)
		}
		all[0].Asked = "/somewhere"
		if _, err := s.host.reopen(t.Context(), all[0]); grpccode.Of(err) != codes.PermissionDenied {
			t.Errorf("%s by its path: %v", tt.name, err)
		}
	}
}
