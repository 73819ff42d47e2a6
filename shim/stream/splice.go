package stream

import (
	"context"
	"io"
	"net"
	"sync"
)

// halfCloser is a connection that can close only its writing side.
type halfCloser interface{ CloseWrite() error }

// Splice copies bytes in both directions between two connections, including half closes, until both directions have
// ended, one has failed or ctx ends. If the other end of a unix connection closes all of it, both directions end,
// because no reader is left. Splice closes both connections.
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

// pump copies from src to dst and passes on the end of src; it reports whether that succeeded. A failure closes both,
// so that the other direction ends too.
func pump(dst, src net.Conn) bool {
	_, err := io.Copy(dst, src)
	if half, ok := dst.(halfCloser); ok && err == nil {
		if half.CloseWrite() == nil {
			return true
		}
	} else if err == nil { // only a full close can signal the end
		src.Close()
		dst.Close()
		return false
	}
	abort(src)
	abort(dst)
	return false
}

// abort closes a connection after a failure. A TCP peer must not take that for a regular end.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails if it is closed
	}
	conn.Close()
}

// hungUp waits until the other end of a unix connection, which has closed its writing side, closes all of it, or until
// conn is closed. For other connections it returns false at once.
func hungUp(conn net.Conn) bool {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	_ = awaitHangup(raw) // after an error this end is closed, which also counts
	return true
}
