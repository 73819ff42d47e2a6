package fsys_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// before is a time that tests give files, which nothing else has.
var before = time.Unix(1_000_000_000, 0)

// TestSetID: set-user-id bits are dropped when a guest creates a file, changes its mode or writes to it. A directory's
// bits concern groups, and stay.
func TestSetID(t *testing.T) {
	t.Parallel()
	mounted, host := share(t, fsys.Options{}, fsys.Root{})
	mode := func(name string) uint32 {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(host, name), &st); err != nil {
			t.Fatal(err)
		}
		return st.Mode & 0o7777
	}
	fd, err := unix.Open(filepath.Join(mounted, "created"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o6755)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	if err := unix.Mknod(filepath.Join(mounted, "made"), unix.S_IFREG|0o6755, 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"created", "made"} {
		if err := unix.Chmod(filepath.Join(mounted, name), 0o6755); err != nil {
			t.Error(err)
		}
		if got := mode(name); got != 0o755 {
			t.Errorf("%s is %o", name, got)
		}
	}
	if err := os.Mkdir(filepath.Join(mounted, "directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(filepath.Join(mounted, "directory"), 0o2775); err != nil {
		t.Error(err)
	}
	if got := mode("directory"); got != 0o2775 {
		t.Errorf("the directory is %o", got)
	}
	for what, do := range map[string]func(path string) error{
		"written":   func(path string) error { return os.WriteFile(path, []byte("x"), 0) },
		"truncated": func(path string) error { return unix.Truncate(path, 1) },
		"emptied": func(path string) error {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
			_ = unix.Close(fd)
			return err
		},
	} {
		path := filepath.Join(host, what)
		if err := os.WriteFile(path, []byte("program"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(path, 0o6755); err != nil {
			t.Fatal(err)
		}
		if err := do(filepath.Join(mounted, what)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := mode(what); got != 0o755 {
			t.Errorf("%s: %o", what, got)
		}
	}
}
