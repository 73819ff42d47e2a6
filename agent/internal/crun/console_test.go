package crun

import (
	"os"
	"testing"
)

// crun's state directory has room for a console socket's address, and the listener removes the socket.
func TestConsoleSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "tty")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := listenConsole(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.path) >= 108 {
		t.Errorf("%s has no room in an address", l.path)
	}
	l.close()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
