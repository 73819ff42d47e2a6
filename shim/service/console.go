package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// console opens the guest's console log, from its start and following. When
// the log is cut because it is full, it is told again from what was kept.
func (e extension) console(context.Context) (func(context.Context, *net.UnixConn), error) {
	f, err := os.Open(e.o.Console)
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	changes, err := watch(e.o.Console, unix.IN_MODIFY|unix.IN_DELETE_SELF)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("follow the console: %w", err)
	}
	return func(ctx context.Context, conn *net.UnixConn) {
		defer f.Close()
		defer changes.Close()
		stop := context.AfterFunc(ctx, func() { changes.Close() })
		defer stop()
		// Nothing is expected from the client but its end.
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, conn)
			changes.Close()
		}()
		follow(conn, f, changes)
		conn.Close()
		<-gone
	}, nil
}

func follow(w io.Writer, f *os.File, changes *os.File) {
	buf := make([]byte, 16<<10)
	var offset int64
	for {
		n, err := f.ReadAt(buf, offset)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			offset += int64(n)
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return
		}
		if info, err := f.Stat(); err != nil {
			return
		} else if info.Size() < offset {
			offset = 0
			continue
		}
		if _, err := changes.Read(buf); err != nil {
			return
		}
	}
}

// watch returns a file that becomes readable when something of mask happens to
// path. Its Close ends a Read.
func watch(path string, mask uint32) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, path, mask); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("inotify: watch %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), "inotify"), nil
}
