package process

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
)

// calls counts the running calls on all connections of a listener. Ttrpc's own Shutdown closes a connection while its
// only call is running, and loses the answer.
type calls struct {
	mu   sync.Mutex
	open int
	none chan struct{} // closed when open reaches 0; nil without a waiter
	last *countingConn // the connection of the answered ShutdownSandbox
}

// listen returns a listener with connections that count their calls.
func (c *calls) listen(l net.Listener) net.Listener { return countingListener{l, c} }

// wait returns when every call has been answered and the client that ended the shim has closed its connection, or when
// ctx ends. Ttrpc's client loses an answer that arrives together with the connection's end.
func (c *calls) wait(ctx context.Context) {
	c.mu.Lock()
	if c.none == nil {
		c.none = make(chan struct{})
	}
	none := c.none
	c.wakeWaiter()
	c.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
		return
	}
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	if last == nil {
		return
	}
	select {
	case <-last.closed:
	case <-ctx.Done():
	}
}

// wakeWaiter wakes the waiter if no calls are open; the caller holds mu.
func (c *calls) wakeWaiter() {
	if c.open == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

func (c *calls) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	c.wakeWaiter()
}

type countingListener struct {
	net.Listener
	calls *calls
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countingConn{Conn: conn, calls: l.calls, closed: make(chan struct{})}, nil
}

// countingConn is used by one reader and one writer, like ttrpc's connections.
type countingConn struct {
	net.Conn
	calls   *calls
	in, out frames

	closed chan struct{} // closed by the peer or by us

	mu     sync.Mutex
	open   int
	ended  bool
	ending uint32 // the stream of ShutdownSandbox, else 0
}

// shutdown is the method that ends the shim, as it appears at the start of a request.
var shutdown = []byte("ShutdownSandbox")

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	begun := 0
	c.in.scan(p[:n], func(kind, _ byte, stream uint32, body []byte) {
		if kind != frameRequest {
			return
		}
		begun++
		if bytes.Contains(body, shutdown) {
			c.mu.Lock()
			c.ending = stream
			c.mu.Unlock()
		}
	})
	c.count(begun)
	return n, err
}

func (c *countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	answered := 0
	c.out.scan(p[:n], func(kind, flags byte, stream uint32, _ []byte) {
		if kind != frameResponse && (kind != frameData || flags&flagClosed == 0) {
			return
		}
		answered++
		c.mu.Lock()
		last := stream == c.ending
		c.mu.Unlock()
		if last {
			c.calls.mu.Lock()
			c.calls.last = c
			c.calls.mu.Unlock()
		}
	})
	c.count(-answered)
	return n, err
}

func (c *countingConn) Close() error {
	c.mu.Lock()
	if !c.ended {
		c.ended = true
		close(c.closed)
		c.calls.add(-c.open)
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

func (c *countingConn) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// An answer without a call does not count.
	if n = max(n, -c.open); n != 0 && !c.ended {
		c.open += n
		c.calls.add(n)
	}
}

// The frames of ttrpc: length, stream, kind and flags, then length bytes.
const (
	frameHead     = 10
	frameRequest  = 1
	frameResponse = 2
	frameData     = 3
	flagClosed    = 1 // the sender has closed the stream
)

// maxBody is the number of a frame's bytes that are kept: a request starts with the names of its service and method.
const maxBody = 128

// frames parses one direction of a connection.
type frames struct {
	head []byte
	body []byte // the first bytes
	rest uint32 // bytes of the frame still to come
}

// scan calls each for every frame that is complete within p.
func (f *frames) scan(p []byte, each func(kind, flags byte, stream uint32, body []byte)) {
	for len(p) > 0 {
		if need := frameHead - len(f.head); need > 0 {
			n := min(need, len(p))
			f.head = append(f.head, p[:n]...)
			if p = p[n:]; len(f.head) < frameHead {
				return
			}
			f.rest = binary.BigEndian.Uint32(f.head)
		}
		n := min(uint64(f.rest), uint64(len(p)))
		f.rest -= uint32(n)
		f.body = append(f.body, p[:min(n, uint64(maxBody-len(f.body)))]...)
		if p = p[n:]; f.rest == 0 {
			each(f.head[8], f.head[9], binary.BigEndian.Uint32(f.head[4:]), f.body)
			f.head, f.body = f.head[:0], f.body[:0]
		}
	}
}
