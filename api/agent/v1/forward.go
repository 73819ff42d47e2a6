package agentv1

import (
	"context"
	"io"
	"net"
	"sync"
)

// Forward connects to a port of the pod. The connection also has CloseWrite. The context covers only the
// connecting. The error matches syscall.ECONNREFUSED if the port has no listener.
func (c *Client) Forward(ctx context.Context, port uint16) (net.Conn, error) {
	return c.stream(ctx, OpForward, Forward{Port: port})
}

// Datagrams opens a stream of Datagrams, as bytes. The context covers only the opening.
func (c *Client) Datagrams(ctx context.Context) (net.Conn, error) {
	return c.stream(ctx, OpDatagrams, nil)
}

// Resolver opens a stream of queries and answers, as bytes; see MaxQueries. The context covers only the opening.
func (c *Client) Resolver(ctx context.Context) (net.Conn, error) {
	return c.stream(ctx, OpResolver, nil)
}

func (c *Client) stream(ctx context.Context, op Op, body any) (net.Conn, error) {
	conn, stop, err := c.startCall(ctx, op, body, nil)
	if err != nil {
		return nil, err
	}
	if !stop() {
		conn.Close()
		return nil, context.Cause(ctx)
	}
	return NewChunkConn(conn), nil
}

// ChunkConn carries bytes as chunks, so that each direction can be closed alone (CloseWrite). A stream of the
// channel cannot do that. Both sides of a forwarded port use it. Reads and writes may be concurrent.
type ChunkConn struct {
	net.Conn
	readMu, writeMu sync.Mutex
	buf, rest       []byte
	ended           error
}

// NewChunkConn wraps a stream and takes ownership of it.
func NewChunkConn(conn net.Conn) *ChunkConn { return &ChunkConn{Conn: conn} }

// Read returns io.EOF after the other side's CloseWrite, and io.ErrUnexpectedEOF if the other side is gone.
func (c *ChunkConn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if len(c.rest) == 0 && c.ended == nil {
		if c.buf == nil {
			c.buf = make([]byte, MaxChunk)
		}
		c.rest, c.ended = ReadChunk(c.Conn, c.buf)
	}
	if len(c.rest) == 0 {
		return 0, c.ended
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write sends p.
func (c *ChunkConn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if err := WriteChunk(c.Conn, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite ends this side's writing.
func (c *ChunkConn) CloseWrite() error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return WriteChunk(c.Conn, nil)
}

// Gone returns when the other side has closed the whole stream, or when it is closed here. Call it after Read has
// returned io.EOF.
func (c *ChunkConn) Gone() {
	_, _ = c.Conn.Read(make([]byte, 1)) // no more data follows
}

// Join copies between two connections in both directions, passes on each end by CloseWrite, and closes both when
// both directions have ended. An error in either direction ends both. So does the end of a ChunkConn after its
// CloseWrite: Join then does not wait for the other connection.
func Join(a, b io.ReadWriteCloser) {
	end := func() {
		a.Close()
		b.Close()
	}
	var directions, watches sync.WaitGroup
	pass := func(to io.Writer, from io.Reader) {
		_, err := io.Copy(to, from)
		if w, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			err = w.CloseWrite()
		}
		if err != nil {
			end()
			return
		}
		if conn, ok := from.(*ChunkConn); ok {
			watches.Go(func() {
				conn.Gone()
				end()
			})
		}
	}
	directions.Go(func() { pass(a, b) })
	directions.Go(func() { pass(b, a) })
	directions.Wait()
	end()
	watches.Wait()
}
