package socket

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

// connection is the key of a request's connection in its context.
type connection struct{}

// WithConnection is an http.Server's ConnContext.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connection{}, c)
}

// Left reports whether the client of a request has gone. The request's context
// says so too, but only when the server has got round to reading.
func Left(ctx context.Context) bool {
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
