package place

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
)

// TestLook: a file's type and place are reported, following links, even if no pod may have it.
func TestLook(t *testing.T) {
	t.Parallel()
	dir, r := tree(t)
	for path, want := range map[string]struct {
		kind uint32
		at   string
	}{
		"file": {unix.S_IFREG, "file"}, "link/b": {unix.S_IFDIR, "a/b"}, "fifo": {unix.S_IFIFO, "fifo"},
		"sock": {unix.S_IFSOCK, "sock"}, "to-own": {unix.S_IFDIR, r.Own[0][len(dir)+1:]},
	} {
		n, err := Stat(t.Context(), filepath.Join(dir, path))
		if err != nil || n.Mode&unix.S_IFMT != want.kind || n.Path != filepath.Join(dir, want.at) || n.IsBlock() {
			t.Errorf("%s: %+v, %v", path, n, err)
		}
	}
	n, err := Stat(t.Context(), "/dev/null")
	if err != nil || n.Mode != unix.S_IFCHR|0o666 || n.Device != unix.Mkdev(1, 3) {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := Stat(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestStatSilent: Stat is not blocked by a silent file system, and makes only a few calls to it.
func TestStatSilent(t *testing.T) {
	t.Parallel()
	silent := testfs.Silent(t, filepath.Join(t.TempDir(), "dead"))
	path := filepath.Join(silent.Dir, "x")
	for range mostAbandoned {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, ErrSilent)
		_, err := Stat(ctx, path)
		cancel()
		if !errors.Is(err, ErrSilent) {
			t.Error(err)
		}
	}
	began := time.Now()
	if _, err := Stat(t.Context(), path); !errors.Is(err, ErrSilent) || time.Since(began) > patience/2 {
		t.Errorf("once more: %v after %v", err, time.Since(began))
	}
}
