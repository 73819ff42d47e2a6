package hostio

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lookAgain is the interval between two looks at the directory. Changes wake the wait earlier. The interval is for
// those that the kernel does not report: a socket that is there but not served yet, and the directory's own removal.
const lookAgain = time.Second

// watch reports changes of a directory.
type watch struct{ events *os.File }

// watch begins to report changes. A user has a limited number of inotify instances. Without
// one, only time passes.
func (d *Dir) watch() watch {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return watch{}
	}
	err = inDirectory(d.root, func() error {
		_, err := unix.InotifyAddWatch(fd, ".", unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE)
		return err
	})
	if err != nil {
		unix.Close(fd)
		return watch{}
	}
	return watch{os.NewFile(uintptr(fd), "inotify")}
}

// wait returns after the next change, after lookAgain, or when ctx ends.
func (w watch) wait(ctx context.Context) {
	if w.events == nil {
		t := time.NewTimer(lookAgain)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		return
	}
	_ = w.events.SetReadDeadline(time.Now().Add(lookAgain))
	stop := context.AfterFunc(ctx, func() { _ = w.events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var b [4096]byte
	_, _ = w.events.Read(b[:]) // an error means that the time has passed
}

func (w watch) close() {
	if w.events != nil {
		w.events.Close()
	}
}
