package socket

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestSocketIsPrivate: other users can connect at no moment.
func TestSocketIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

// TestSocketOfAnother: after its directory was removed, an engine leaves its successor's socket at the same path
// alone.
func TestSocketOfAnother(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	old, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	next, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the successor's socket: %v", err)
	}
}
