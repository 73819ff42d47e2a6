package stream

import (
	"context"
	"io"
	"net"
	"sync"
)

// halfCloser is a connection whose writing side ends alone.
type halfCloser interface{ CloseWrite() error }

// Splice copies bytes both ways between two connections, with their half
// closes, until both directions have ended, one has failed or ctx ends. A unix
// connection whose other end is closed as a whole ends both as well, for nobody
// is left there to read what the other side may never say. It closes both
// connections.
func Splice(ctx context.Context, a, b net.Conn) {
	end := func() {
		a.Close()
		b.Close()
	}
	stop := context.AfterFunc(ctx, end)
	defer stop()
	var directions, watches sync.WaitGroup
	pass := func(dst, src net.Conn) {
		if pump(dst, src) {
			watches.Go(func() {
				if hungUp(src) {
					end()
				}
			})
		}
	}
	directions.Go(func() { pass(a, b) })
	directions.Go(func() { pass(b, a) })
	directions.Wait()
	end()
	watches.Wait()
}

// pump copies from src to dst and passes on the end, which it tells; a failure
// closes both, so that the other direction ends too.
func pump(dst, src net.Conn) bool {
	_, err := io.Copy(dst, src)
	if half, ok := dst.(halfCloser); ok && err == nil {
		if half.CloseWrite() == nil {
			return true
		}
	} else if err == nil { // its end can only be told by closing it
		src.Close()
		dst.Close()
		return false
	}
	abort(src)
	abort(dst)
	return false
}

// abort closes a connection that has broken off in the middle: who is at the other
// end of a TCP connection is not to take that for its regular end.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails on one that is closed
	}
	conn.Close()
}

// hungUp waits until the other end of a unix connection, which has ended its
// writing, has closed it altogether, or until conn is closed. Of other
// connections it knows nothing and says false at once.
func hungUp(conn net.Conn) bool {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	_ = awaitHangup(raw) // an error says that it was closed here, and that is as good
	return true
}
