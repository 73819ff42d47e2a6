package shares

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// TestAttachFollowsNoLink: what a pod shares is a path without links. A guest that has a
// directory above it puts a link in its place, before its server is started again.
func TestAttachFollowsNoLink(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]func(dir, secret string) error{
		"itself": func(dir, secret string) error {
			return replace(filepath.Join(dir, "above", "shared"), secret)
		},
		"above it": func(dir, secret string) error {
			return replace(filepath.Join(dir, "above"), filepath.Dir(secret))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, secret := realDir(t), filepath.Join(realDir(t), "shared")
			one := store.Share{Path: filepath.Join(dir, "above", "shared"), Cache: "auto"}
			for _, path := range []string{one.Path, secret} {
				if err := os.MkdirAll(path, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			s := New(nil, Host{Program: "/bin/true", Logger: slog.New(slog.DiscardHandler)})
			s.all[Name(one)] = one
			if err := swap(dir, secret); err != nil {
				t.Fatal(err)
			}
			self, err := procid.Of(os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.attach(t.Context(), self, []store.Share{one}); failure.Code(err) != codes.PermissionDenied {
				t.Errorf("what a link leads to is shared: %v", err)
			}
			// Those that were shared before are not held up by it.
			if err := s.attach(t.Context(), self, nil); err != nil || len(s.placed) != 0 {
				t.Errorf("shared are %v: %v", s.placed, err)
			}
		})
	}
}

// TestOwnBehindLink: Bulkhead's own directory is not shared where a link leads to it.
func TestOwnBehindLink(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	own, link := filepath.Join(dir, "own"), filepath.Join(dir, "link")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	h := Host{Own: []string{link}}
	if p, err := h.open(own, ""); failure.Code(err) != codes.PermissionDenied {
		t.Errorf("%v, %v", p, err)
	}
	p, err := h.open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if len(p.masks) != 1 || p.masks[0] != "own" {
		t.Errorf("hidden are %q", p.masks)
	}
}

// TestNext: a guest that ends its servers is given them ever later, until one serves for a while.
func TestNext(t *testing.T) {
	t.Parallel()
	s := New(nil, Host{})
	for i, tt := range []struct{ served, want time.Duration }{
		{0, firstRetry}, {time.Second, 2 * firstRetry}, {0, 4 * firstRetry}, {steady, firstRetry}, {0, 2 * firstRetry},
	} {
		if got := s.next(tt.served); got != tt.want {
			t.Errorf("%d: %v, want %v", i, got, tt.want)
		}
	}
	for range 20 {
		s.next(0)
	}
	if got := s.next(0); got != lastRetry {
		t.Errorf("in the end: %v", got)
	}
}

// replace puts a link in the place of a directory.
func replace(path, target string) error {
	if err := os.Rename(path, path+".old"); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
