package shares

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
)

// TestAttachFollowsNoLink checks that a share's path follows no link. A guest with a parent directory may place one
// before the server restarts.
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
			if err := s.attach(t.Context(), self, []store.Share{one}); grpccode.Of(err) != codes.PermissionDenied {
				t.Errorf("the target of a link is shared: %v", err)
			}
			// Directories that were shared before are not delayed.
			if err := s.attach(t.Context(), self, nil); err != nil || len(s.placed) != 0 {
				t.Errorf("shared are %v: %v", s.placed, err)
			}
		})
	}
}

// TestUnmounted checks that an unmounted share is not replaced by its mount point, and that it returns when it is
// mounted again.
func TestUnmounted(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	at := filepath.Join(realDir(t), "at")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := func() {
		t.Helper()
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1M"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	mount()
	s := New(nil, Host{Program: "/bin/true", Logger: slog.New(slog.DiscardHandler)})
	for _, part := range []string{"", "part"} {
		mounts := []containerv1.Mount{{Destination: "/a", Source: containerv1.Share{Name: at}, SubPath: part}}
		all, err := s.Of(t.Context(), store.Staging{}, nil, mounts)
		if err != nil {
			t.Fatal(err)
		}
		s.all[Name(all[0])] = all[0]
	}
	self, err := procid.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	attached := func(want int) {
		t.Helper()
		clear(s.placed)
		if err := s.attach(t.Context(), self, nil); err != nil || len(s.placed) != want {
			t.Errorf("shared are %v, want %d: %v", s.placed, want, err)
		}
	}
	attached(2)
	if err := errors.Join(unix.Unmount(at, unix.MNT_DETACH), os.Mkdir(filepath.Join(at, "part"), 0o755)); err != nil {
		t.Fatal(err)
	}
	attached(0)
	mount()
	if err := os.Mkdir(filepath.Join(at, "part"), 0o755); err != nil {
		t.Fatal(err)
	}
	attached(2)
}

// TestSilent checks that a hanging file system fails only the requests for it, by name. Other containers and the
// server's next start continue.
func TestSilent(t *testing.T) {
	t.Parallel()
	dir := realDir(t)
	dead := testfs.Silent(t, filepath.Join(dir, "dead"))
	self, err := procid.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	s := New(&pod{server: self}, Host{Program: "/bin/true", Logger: slog.New(slog.DiscardHandler)})
	silent, good := store.Share{Path: filepath.Join(dead.Dir, "x"), Cache: "auto"}, store.Share{Path: dir, Cache: "auto"}
	failed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // ten times the other one's time, under load
		defer cancel()
		failed <- s.Ensure(ctx, []store.Share{silent})
	}()
	for s.known() == 0 { // it has asked
		time.Sleep(time.Millisecond)
	}
	if err := s.Ensure(t.Context(), []store.Share{good}); err != nil {
		t.Errorf("another container: %v", err)
	}
	select {
	case err := <-failed:
		t.Errorf("it was first: %v", err)
	default:
	}
	if err := <-failed; grpccode.Of(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), silent.Path) {
		t.Error(err)
	}
	// All of them, as for a restarted server.
	s.placed = map[string]bool{}
	if err := s.serve(t.Context(), nil); err != nil || !s.placed[Name(good)] || s.placed[Name(silent)] {
		t.Errorf("%v, %v", s.placed, err)
	}
	// The server gets it when it answers.
	dead.End()
	if err := os.MkdirAll(silent.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	s.rest(t.Context())
	if !s.placed[Name(silent)] {
		t.Errorf("after it answers again: %v", s.placed)
	}
}

func (s *Set) known() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// pod is a pod with a server.
type pod struct{ server procid.ID }

func (p *pod) Record() store.Pod                   { return store.Pod{ShareServer: p.server} }
func (*pod) Up() bool                              { return true }
func (*pod) Serving(procid.ID) error               { return nil }
func (*pod) Journal(context.Context) error         { return nil }
func (*pod) Spawn(func(ctx context.Context)) error { return nil }

// TestHelperThatHangs checks that a helper that cannot be killed does not block its caller.
func TestHelperThatHangs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := run(ctx, exec.Command("sleep", "600"), []store.Share{{Path: "/the/path"}})
	if grpccode.Of(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "/the/path") {
		t.Error(err)
	}
}

// TestNext checks that the pause before a restart grows, until a server runs for a while.
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

// replace replaces a directory by a link.
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
