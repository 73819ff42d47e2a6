package process

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// limitFiles bounds the size of files that this process and its VM write to the size of the largest disk. Otherwise a
// compromised QEMU could grow the disk that a VM writes without bound.
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

// closeInherited closes descriptors above stderr that the parent left open. Inherited descriptors lack close-on-exec;
// those of this process and the Go runtime have it.
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
