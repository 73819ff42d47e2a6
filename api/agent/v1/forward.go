package agentv1

import (
	"context"
	"io"
	"net"
	"sync"
)

// Forward connects to a port of the pod. The connection has CloseWrite besides
// net.Conn's methods. The context covers only the connecting. An error matches
// syscall.ECONNREFUSED when nothing listens there.
func (c *Client) Forward(ctx context.Context, port uint16) (net.Conn, error) {
	return c.stream(ctx, OpForward, Forward{Port: port})
}

// Datagrams opens a stream of Datagrams, as bytes. The context covers only the opening.
func (c *Client) Datagrams(ctx context.Context) (net.Conn, error) {
	return c.stream(ctx, OpDatagrams, nil)
}

func (c *Client) stream(ctx context.Context, op Op, body any) (net.Conn, error) {
	conn, stop, err := c.begin(ctx, op, body, nil)
	if err != nil {
		return nil, err
	}
	if !stop() {
		conn.Close()
		return nil, context.Cause(ctx)
	}
	return NewChunkConn(conn), nil
}

// ChunkConn carries bytes as chunks, so that either end can be closed alone
// (CloseWrite), which a stream of the channel cannot. Both sides of a
// forwarded port use it. Reads and writes may go on at once.
type ChunkConn struct {
	net.Conn
	readMu, writeMu sync.Mutex
	buf, rest       []byte
	ended           error
}

// NewChunkConn wraps a stream, which it owns from then on.
func NewChunkConn(conn net.Conn) *ChunkConn { return &ChunkConn{Conn: conn} }

// Read returns io.EOF when the other side has closed its writing end, and
// io.ErrUnexpectedEOF when it has gone.
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

// CloseWrite tells the other side that nothing more will be written.
func (c *ChunkConn) CloseWrite() error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return WriteChunk(c.Conn, nil)
}

// Gone returns when the other side has closed the stream as a whole, or the
// stream is closed here. It is called after Read has returned io.EOF.
func (c *ChunkConn) Gone() {
	_, _ = c.Conn.Read(make([]byte, 1)) // nothing more is due
}

// Join copies between two connections, each direction until its end, which
// is passed on by CloseWrite, and returns when both have ended; then both are
// closed. An error in either direction ends both, and so does it when the other
// side of a ChunkConn that has said its last is gone: what the other connection
// may yet say, or never says, nobody waits for.
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
