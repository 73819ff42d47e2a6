package podsock

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListen: only its user may use a socket, whatever the umask, and it replaces one that a dead process has left.
func TestListen(t *testing.T) {
	before := unix.Umask(0)
	defer unix.Umask(before)
	path := filepath.Join(t.TempDir(), "socket")
	for range 2 {
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		info, err := os.Stat(path)
		if err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		l.Close()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("in place of a directory that is in use: %v", err)
	}
	if _, err := Listen(filepath.Join(t.TempDir(), "none", "socket")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
}

// TestListenGroup: the directory's group may use the socket.
func TestListenGroup(t *testing.T) {
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	dir := t.TempDir()
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chown(dir, -1, 1234), unix.Chmod(dir, unix.S_ISGID|0o710)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := ListenGroup(filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "socket"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode != unix.S_IFSOCK|0o660 || os.Geteuid() == 0 && st.Gid != 1234 {
		t.Errorf("mode %o, group %d", st.Mode, st.Gid)
	}
	if mask := unix.Umask(0o077); mask != 0o077 {
		t.Errorf("the umask is %o", mask)
	}
}
