package server

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCloseInherited: a descriptor that came through an exec is closed, one of the program's own stays.
func TestCloseInherited(t *testing.T) {
	if os.Getenv("INHERITED_TEST") != "" {
		own, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		if err := closeInherited(); err != nil {
			t.Fatal(err)
		}
		for fd, want := range map[int]error{3: nil, 4: unix.EBADF, 5: unix.EBADF, int(own.Fd()): nil} {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != want { //nolint:errorlint // the kernel's own number
				t.Errorf("descriptor %d: %v, want %v", fd, err, want)
			}
		}
		return
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCloseInherited$", "-test.v")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), "INHERITED_TEST=1"), []*os.File{null, null, null}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
