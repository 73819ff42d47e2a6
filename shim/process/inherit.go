package process

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// limitFiles lets no file of this process, nor of its machine, become larger than
// the largest disk: the one that a machine writes has no other end for a QEMU that
// has been taken over.
func limitFiles() error {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_FSIZE, &l)
	if err == nil {
		l.Max = min(l.Max, hypervisor.SlotSize)
		l.Cur = min(l.Cur, l.Max)
		err = unix.Setrlimit(unix.RLIMIT_FSIZE, &l)
	}
	if err != nil {
		return fmt.Errorf("limit the size of files: %w", err)
	}
	return nil
}

// closeInherited closes what the parent left open above stderr. Descriptors of
// this process's own, the Go runtime's among them, are all close-on-exec, and
// what came through exec is not.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited files: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}
