package process

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/layout"
)

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

// boundedLog keeps stderr, a file, within layout.LogLimit: when it is full it
// is begun anew.
type boundedLog struct {
	mu sync.Mutex
	f  *os.File
}

func (l *boundedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info, err := l.f.Stat(); err == nil && info.Mode().IsRegular() && info.Size()+int64(len(p)) > layout.LogLimit {
		_ = l.f.Truncate(0)
	}
	return l.f.Write(p)
}
