package process

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// watch ends the shim when the state directory is removed, which is how an unreachable shim is stopped. It watches for
// the removal of the lock file. The kernel reports the directory's own removal only when its inode is freed, and
// Landlock's rules hold that inode.
func (s *shim) watch() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch %s: %w", s.m.StateDir, err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, s.m.StateDir, unix.IN_DELETE|unix.IN_MOVE_SELF); err != nil {
		f.Close()
		return fmt.Errorf("watch %s: %w", s.m.StateDir, err)
	}
	// The goroutine ends with the process.
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			if err != nil {
				s.log.Error("watch the state directory", "error", err)
				return
			}
			if isRemoval(buf[:n]) {
				s.requestEnd(removed)
				return
			}
		}
	}()
	return nil
}

// isRemoval reports whether a batch of inotify events contains the removal. A queue overflow does not count: the
// removal of the lock may be lost then.
func isRemoval(b []byte) bool {
	for len(b) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(b[4:])
		length := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if length > len(b) {
			return false
		}
		name := string(bytes.TrimRight(b[:length], "\x00"))
		if mask&unix.IN_MOVE_SELF != 0 || mask&unix.IN_DELETE != 0 && name == layout.Lock {
			return true
		}
		b = b[length:]
	}
	return false
}
