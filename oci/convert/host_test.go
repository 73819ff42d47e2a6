package convert

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLocal(t *testing.T) {
	dir, err := os.MkdirTemp("", "local")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file, link, fifo, socket := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo"), filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, err := range []error{os.WriteFile(file, nil, 0o640), os.Symlink("file", link), unix.Mkfifo(fifo, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]NodeType{
		dir: Dir, file: Regular, link: Regular, fifo: FIFO, socket: Socket, "/dev/null": Char,
	} {
		if n, err := (Local{}).Node(path); err != nil || n.Type != want {
			t.Errorf("%s: %+v, %v", path, n, err)
		}
	}
	if n, err := (Local{}).Node("/dev/null"); err != nil || n.Major != 1 || n.Minor != 3 {
		t.Errorf("/dev/null: %+v, %v", n, err)
	}
	if n, err := (Local{}).Node(file); err != nil || n.Mode != 0o640 || n.GID != uint32(os.Getegid()) {
		t.Errorf("file: %+v, %v", n, err)
	}
	if _, err := (Local{}).Node(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if size, err := (Local{}).ShmBytes("/proc"); err != nil || size != 0 {
		t.Errorf("/proc: %d, %v", size, err)
	}
	if size, err := (Local{}).ShmBytes("/dev/shm"); err != nil || size <= 0 {
		t.Errorf("/dev/shm: %d, %v", size, err)
	}
	if _, err := (Local{}).ShmBytes(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
