package process

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// TestCloseInherited: inherited descriptors are closed; the process's own and the standard streams stay open.
func TestCloseInherited(t *testing.T) {
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inherited, err := unix.Dup(int(f.Fd())) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	if err := closeInherited(); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(inherited), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("it is open: %v", err)
	}
	for _, fd := range []uintptr{0, 1, 2, f.Fd()} {
		if _, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
}

// TestLimitFiles: a file cannot grow beyond the largest disk.
func TestLimitFiles(t *testing.T) {
	if err := limitFiles(); err != nil {
		t.Fatal(err)
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &l); err != nil || l.Max > hypervisor.SlotSize || l.Cur > l.Max {
		t.Errorf("%+v, %v", l, err)
	}
}
