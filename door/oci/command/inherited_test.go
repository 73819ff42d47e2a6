package command

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestKeepInherited: a descriptor of the caller, which is not closed on exec, does not reach other programs.
func TestKeepInherited(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(pipe[0]), unix.Close(pipe[1]) })
	if err := keepInherited(); err != nil {
		t.Fatal(err)
	}
	for _, fd := range pipe {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %#x, %v, want FD_CLOEXEC", fd, flags, err)
		}
	}
	for fd := range 3 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			t.Errorf("standard stream %d: flags %#x, %v", fd, flags, err)
		}
	}
}
