package hostcgroup

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// waitEmpty waits until a group of cgroup2 has no process any more, or is gone.
func waitEmpty(ctx context.Context, dir string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("inotify_init1", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	path := filepath.Join(dir, "cgroup.events")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil {
		if gone(err) {
			return nil
		}
		return os.NewSyscallError("inotify_add_watch", err)
	}
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	buf := make([]byte, 4096)
	for {
		data, err := os.ReadFile(path)
		if gone(err) || err == nil && !strings.Contains("\n"+string(data), "\npopulated 1") {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := events.Read(buf); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
}
