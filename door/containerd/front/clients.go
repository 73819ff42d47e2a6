package front

import (
	"context"
	"net"
	"sync"

	"github.com/containerd/ttrpc"
)

// clients counts the connections of clients. A client leaves after the answer to its last call. The server itself would
// close the connection of a call that has its answer, but has not sent it yet.
type clients struct {
	inner ttrpc.Handshaker

	mu    sync.Mutex
	count int
	none  chan struct{} // closed when count becomes zero; nil if nobody waits
}

// Handshake implements ttrpc.Handshaker.
func (c *clients) Handshake(ctx context.Context, conn net.Conn) (net.Conn, any, error) {
	conn, info, err := c.inner.Handshake(ctx, conn)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	return &counted{Conn: conn, left: sync.OnceFunc(c.left)}, info, nil
}

func (c *clients) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count--; c.count == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// wait waits until all clients have left, or ctx ends. One call waits at a time, and no client may come meanwhile.
func (c *clients) wait(ctx context.Context) {
	c.mu.Lock()
	if c.count == 0 {
		c.mu.Unlock()
		return
	}
	none := make(chan struct{})
	c.none = none
	c.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// counted is the connection of a client.
type counted struct {
	net.Conn
	left func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.left()
	return c.Conn.Close()
}
