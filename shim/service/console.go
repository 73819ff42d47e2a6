package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Console is the guest's console log. It must be opened before the shim is sealed, because a sealed shim cannot create
// inotify watches.
type Console struct {
	log    *os.File
	events *os.File // inotify's

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when the log changes
	closed  bool          // no further change is reported
}

// OpenConsole opens the existing log at path. The caller closes it.
func OpenConsole(path string) (*Console, error) {
	log, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("follow the console: inotify: %w", err)
	}
	c := &Console{log: log, events: os.NewFile(uintptr(fd), "inotify"), changed: make(chan struct{})}
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY|unix.IN_DELETE_SELF); err != nil {
		c.events.Close()
		log.Close()
		return nil, fmt.Errorf("follow the console: inotify: watch %s: %w", path, err)
	}
	go c.watch() // until Close
	return c, nil
}

// Close closes the log and ends its followers.
func (c *Console) Close() error { return errors.Join(c.events.Close(), c.log.Close()) }

func (c *Console) watch() {
	buf := make([]byte, 4096)
	for {
		_, err := c.events.Read(buf)
		c.mu.Lock()
		close(c.changed)
		c.changed = make(chan struct{})
		c.closed = err != nil
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// next returns a channel that is closed at the next change; more is false after Close.
func (c *Console) next() (change <-chan struct{}, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed, !c.closed
}

// console streams the guest's console log from its start and follows it. When the full log is truncated, it streams the
// kept part again.
func (e extension) console(context.Context) (func(context.Context, *net.UnixConn), error) {
	if e.o.Console == nil {
		return nil, errors.New("the pod has no console log")
	}
	return func(ctx context.Context, conn *net.UnixConn) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		// The client sends nothing; only its end matters.
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, conn)
			cancel()
		}()
		e.o.Console.follow(ctx, conn)
		conn.Close()
		<-gone
	}, nil
}

// follow writes the log to w until ctx, the log or w ends.
func (c *Console) follow(ctx context.Context, w io.Writer) {
	buf := make([]byte, 16<<10)
	var offset int64
	for {
		change, more := c.next() // before the read, so that no later change is missed
		n, err := c.log.ReadAt(buf, offset)
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
		if info, err := c.log.Stat(); err != nil || !more {
			return
		} else if info.Size() < offset {
			offset = 0
			continue
		}
		select {
		case <-change:
		case <-ctx.Done():
			return
		}
	}
}
