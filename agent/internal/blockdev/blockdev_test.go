package blockdev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestUnmount: a briefly busy mount is unmounted once it is free. A mount that stays busy, and a missing one, are
// errors.
func TestUnmount(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounts, which is for root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := Unmount(short, dir); !errors.Is(err, unix.EBUSY) {
		t.Errorf("in use: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, func() { f.Close() })
	if err := Unmount(t.Context(), dir); err != nil {
		t.Errorf("in use for a moment: %v", err)
	}
	if err := Unmount(t.Context(), dir); !errors.Is(err, unix.EINVAL) {
		t.Errorf("not mounted: %v", err)
	}
}
