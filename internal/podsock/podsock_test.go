package podsock

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testsock"
)

func TestDial(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pod")
	if err := os.MkdirAll(filepath.Join(dir, "vm"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"own", "vm/own"} {
		got := testsock.Listen(t, filepath.Join(dir, name))
		conn, err := Dial(t.Context(), dir, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		<-got
		peer, err := Peer(conn)
		if err != nil || int(peer.Pid) != os.Getpid() {
			t.Errorf("%s: peer %v: %v", name, peer, err)
		}
		conn.Close()
	}
	if _, err := Dial(t.Context(), dir, "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "dead"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := Dial(t.Context(), dir, "dead"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("without a listener: %v", err)
	}
}

// Nothing that the owner of a directory puts there leads elsewhere.
func TestDialImpostors(t *testing.T) {
	base := t.TempDir()
	dir, other := filepath.Join(base, "pod"), filepath.Join(base, "other")
	for _, d := range []string{dir, filepath.Join(other, "vm")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	victim := testsock.Listen(t, filepath.Join(other, "vm", "qmp"))
	for name, plant := range map[string]func(path string) error{
		"link":     func(path string) error { return os.Symlink(filepath.Join(other, "vm", "qmp"), path) },
		"vm/qmp":   func(path string) error { return os.Symlink(filepath.Join(other, "vm"), filepath.Dir(path)) },
		"relative": func(path string) error { return os.Symlink("../other/vm/qmp", path) },
		"magic/qmp": func(path string) error {
			return os.Symlink("/proc/self/root"+filepath.Join(other, "vm"), filepath.Dir(path))
		},
		"file":       func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"fifo":       func(path string) error { return unix.Mkfifo(path, 0o600) },
		"../other/x": func(string) error { return os.Link(filepath.Join(other, "vm", "qmp"), filepath.Join(other, "x")) },
	} {
		if err := plant(filepath.Join(dir, name)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		conn, err := Dial(t.Context(), dir, name)
		if !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v, want ErrForeign", name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	// The directory itself must not be a link either.
	alias := filepath.Join(base, "alias")
	if err := os.Symlink(filepath.Join(other, "vm"), alias); err != nil {
		t.Fatal(err)
	}
	if conn, err := Dial(t.Context(), alias, "qmp"); err == nil {
		conn.Close()
		t.Error("followed a link in place of the directory")
	}
	select {
	case <-victim:
		t.Error("another user's socket was connected to")
	default:
	}
	Remove(filepath.Join(dir, "vm"), "qmp")
	if _, err := os.Lstat(filepath.Join(other, "vm", "qmp")); err != nil {
		t.Errorf("another user's socket was removed: %v", err)
	}
}

// A socket in a pod's directory that another user has created, or listens at, is not the pod's.
func TestDialAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	const pod = 1_900_000_001
	dir := filepath.Join(t.TempDir(), "pod")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, pod, pod); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "shim.sock")
	victim := testsock.Listen(t, path)
	if _, err := Dial(t.Context(), dir, "shim.sock"); !errors.Is(err, ErrForeign) {
		t.Errorf("root's socket: %v", err)
	}
	select {
	case <-victim:
		t.Error("it was connected to")
	default:
	}
	// By now the pod owns its file, but not its process.
	if err := os.Chown(path, pod, pod); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), dir, "shim.sock"); !errors.Is(err, ErrForeign) {
		t.Errorf("root listens: %v", err)
	}
}
