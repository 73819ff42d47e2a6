package stream

import (
	"context"
	"io"
	"net"
)

// halfCloser is a connection whose writing side ends alone.
type halfCloser interface{ CloseWrite() error }

// Splice copies bytes both ways between two connections, with their half
// closes, until both directions have ended, one has failed or ctx ends. It
// closes both connections.
func Splice(ctx context.Context, a, b net.Conn) {
	stop := context.AfterFunc(ctx, func() {
		a.Close()
		b.Close()
	})
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pump(a, b)
	}()
	pump(b, a)
	<-ended
	a.Close()
	b.Close()
}

// pump copies from src to dst and passes on the end; a failure closes both, so
// that the other direction ends too.
func pump(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	if half, ok := dst.(halfCloser); ok && err == nil {
		if half.CloseWrite() == nil {
			return
		}
	}
	src.Close()
	dst.Close()
}
