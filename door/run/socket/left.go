package socket

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

// connection is the context key of a request's connection.
type connection struct{}

// WithConnection is the ConnContext of an http.Server.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connection{}, c)
}

// Left reports whether the client of a request has disconnected. The request's context reports it too, but only
// after the server has read from the connection.
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
