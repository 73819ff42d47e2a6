package shares

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

// TestCodes checks the codes for errors of paths.
func TestCodes(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	own := filepath.Join(dir, "own")
	for _, err := range []error{
		os.Mkdir(own, 0o700), os.Symlink("/etc", filepath.Join(dir, "out")), os.Symlink("loop", filepath.Join(dir, "loop")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	h := Host{Rules: place.Rules{Own: []string{own}}}
	for _, tt := range []struct {
		ctx        context.Context
		path, part string
		code       codes.Code
	}{
		{path: "relative", code: codes.InvalidArgument},
		{path: dir, part: "out", code: codes.InvalidArgument},
		{path: dir, part: "../x", code: codes.InvalidArgument},
		{path: dir + "/loop", code: codes.InvalidArgument},
		{path: dir + "/none", code: codes.NotFound},
		{path: dir + "/file/x", code: codes.NotFound},
		{path: dir + "/fifo", code: codes.Unimplemented},
		{path: dir + "/sock", code: codes.Unimplemented},
		{path: "/proc/sys", code: codes.Unimplemented},
		{path: own, code: codes.PermissionDenied},
		{path: own + "/none", code: codes.NotFound},
		{ctx: ended, path: dir, code: codes.Canceled},
	} {
		if tt.ctx == nil {
			tt.ctx = t.Context()
		}
		p, err := h.open(tt.ctx, tt.path, place.OpenOptions{Part: tt.part})
		if err == nil {
			p.Close()
		}
		if grpccode.Of(err) != tt.code && (tt.ctx == t.Context() || err != nil) {
			t.Errorf("%s, %s: %v, want %v", tt.path, tt.part, err, tt.code)
		}
	}
}
