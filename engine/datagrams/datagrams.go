// Package datagrams publishes UDP ports of a pod on the host. The engine keeps the sockets and the clients'
// addresses: the shim, which carries datagrams into the guest, cannot send to other hosts.
package datagrams

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// idle is how long a flow lives after its last datagram in either direction, at least the minimum of RFC 4787 for
// NATs.
const idle = 2 * time.Minute

// openTimeout bounds the opening of a stream. A failed opening is retried after retry.
const (
	openTimeout = 10 * time.Second
	retry       = time.Second
)

// Relay carries the datagrams of one pod. Its methods are safe for concurrent use.
type Relay struct {
	open func(context.Context) (net.Conn, error)
	log  *slog.Logger
	idle time.Duration

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	opening sync.Mutex // held while a stream is opened

	mu      sync.Mutex
	closed  bool
	sockets map[*socket]bool
	guest   *guest // nil while there is no flow
	failed  time.Time
}

// socket is a published port.
type socket struct {
	*net.UDPConn
	port uint16 // of the pod
}

// guest is a stream to the guest, and the flows that it carries.
type guest struct {
	conn net.Conn
	out  sync.Mutex // held while a datagram is written

	// The relay's mu guards the fields below.
	last  uint32
	flows map[uint32]*list.Element
	by    map[client]*list.Element
	order *list.List // of *flow, the most recently used one last
}

// client is the sender of datagrams to one address.
type client struct {
	socket *socket
	from   netip.AddrPort
	to     string // control message that sends answers from there
}

type flow struct {
	client
	id   uint32
	used time.Time
}

// New returns a relay without ports. It calls open for the first datagram of the pod (agentv1.Datagram), and closes
// the stream when there are no flows.
func New(open func(context.Context) (net.Conn, error), log *slog.Logger) *Relay {
	r := &Relay{open: open, log: log, idle: idle, sockets: map[*socket]bool{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Publish forwards datagrams that arrive at conn to a port of the pod. The relay owns conn.
func (r *Relay) Publish(conn *net.UDPConn, port uint16) error {
	if err := reportDestination(conn); err != nil {
		conn.Close()
		return err
	}
	s := &socket{conn, port}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		conn.Close()
		return net.ErrClosed
	}
	r.sockets[s] = true
	r.wg.Go(func() { r.serve(s) })
	return nil
}

// Unpublish closes the socket with a local port and ends its flows.
func (r *Relay) Unpublish(local int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.sockets {
		if s.LocalAddr().(*net.UDPAddr).Port == local {
			s.Close()
			delete(r.sockets, s)
		}
	}
}

// Close closes all sockets and streams, and waits for that.
func (r *Relay) Close() {
	r.cancel()
	r.mu.Lock()
	r.closed = true
	for s := range r.sockets {
		s.Close()
	}
	if r.guest != nil {
		r.guest.conn.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// serve reads datagrams of clients until the socket is closed.
func (r *Relay) serve(s *socket) {
	buf := make([]byte, agentv1.DatagramHeader+agentv1.MaxDatagram)
	control := make([]byte, 128)
	for {
		n, nc, _, from, err := s.ReadMsgUDPAddrPort(buf[agentv1.DatagramHeader:], control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for an earlier datagram: its client is gone or out of reach
			continue
		}
		g := r.stream()
		if g == nil {
			continue
		}
		id, evicted := r.flowOf(g, client{s, from, source(control[:nc])})
		if evicted != 0 {
			g.write(make([]byte, agentv1.DatagramHeader), evicted, 0, 0)
		}
		g.write(buf, id, s.port, n)
	}
}

// stream returns the stream to the guest, or nil if it cannot be opened.
func (r *Relay) stream() *guest {
	r.opening.Lock()
	defer r.opening.Unlock()
	r.mu.Lock()
	g, wait := r.guest, time.Since(r.failed) < retry
	r.mu.Unlock()
	if g != nil || wait {
		return g
	}
	ctx, cancel := context.WithTimeout(r.ctx, openTimeout)
	defer cancel()
	conn, err := r.open(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed = time.Now()
		r.log.Debug("open a stream of datagrams", "error", err)
		return nil
	}
	if r.closed {
		conn.Close()
		return nil
	}
	g = &guest{conn: conn, flows: map[uint32]*list.Element{}, by: map[client]*list.Element{}, order: list.New()}
	r.guest = g
	r.wg.Go(func() { r.receive(g) })
	r.wg.Go(func() { r.expire(g) })
	return g
}

// flowOf finds or creates the flow of a client. If there are too many, it evicts the least recently used one.
func (r *Relay) flowOf(g *guest, c client) (id, evicted uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := g.by[c]; e != nil {
		return g.used(e).id, 0
	}
	if g.order.Len() >= agentv1.MaxFlows {
		evicted = g.forget(g.order.Front())
	}
	g.last++
	f := &flow{client: c, id: g.last, used: time.Now()}
	e := g.order.PushBack(f)
	g.flows[f.id], g.by[c] = e, e
	return f.id, evicted
}

func (g *guest) used(e *list.Element) *flow {
	f := e.Value.(*flow)
	f.used = time.Now()
	g.order.MoveToBack(e)
	return f
}

func (g *guest) forget(e *list.Element) (id uint32) {
	f := g.order.Remove(e).(*flow)
	delete(g.flows, f.id)
	delete(g.by, f.client)
	return f.id
}

// write sends a datagram. Its data follow the place of the header in buf. receive notices a failed stream.
func (g *guest) write(buf []byte, id uint32, port uint16, size int) {
	agentv1.PutDatagram(buf, id, port, size)
	g.out.Lock()
	defer g.out.Unlock()
	if _, err := g.conn.Write(buf[:agentv1.DatagramHeader+size]); err != nil {
		g.conn.Close()
	}
}
