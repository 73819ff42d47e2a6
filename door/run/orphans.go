package run

import (
	"context"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// orphans are the ends of pods that nobody waits for any more: those of a
// foreground run whose command has gone, and of pods that remove themselves. A
// reap waits for them, so that its answer tells what is left.
type orphans struct {
	mu   sync.Mutex
	open map[*orphan]struct{}
}

// orphan is one of them, once gone says so.
type orphan struct {
	gone func() bool
	done chan struct{}
}

// begin takes in what is an orphan as soon as gone says so, until end is
// called.
func (o *orphans) begin(gone func() bool) (end func()) {
	n := &orphan{gone, make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[*orphan]struct{}{}
	}
	o.open[n] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.open, n)
		close(n.done)
	}
}

// settle returns when those that are orphans now have ended.
func (o *orphans) settle(ctx context.Context) error {
	o.mu.Lock()
	var wait []*orphan
	for n := range o.open {
		if n.gone() {
			wait = append(wait, n)
		}
	}
	o.mu.Unlock()
	for _, n := range wait {
		select {
		case <-n.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of pods that nobody wants: %w", ctx.Err())
		}
	}
	return nil
}

func always() bool { return true }

// connection is the key of a request's connection in its context.
type connection struct{}

// withConnection is an http.Server's ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connection{}, c)
}

// left reports whether the client of a request has gone. The request's context
// says so too, but only when the server has got round to reading.
func left(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	c, ok := ctx.Value(connection{}).(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0
	})
	return gone || err != nil
}
