// Package datagrams publishes UDP ports of a pod on the host. Sockets and clients' addresses stay
// with the engine: who carries a datagram into the guest, the shim, can send to nobody.
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

// idle is how long a flow is remembered after its last datagram, of either direction: no less
// than a translator of addresses may (RFC 4787).
const idle = 2 * time.Minute

// openTimeout bounds the opening of a stream; what fails is tried again after retry.
const (
	openTimeout = 10 * time.Second
	retry       = time.Second
)

// Relay carries the datagrams of one pod. Its methods may be called at once.
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

	// What follows is guarded by the relay's mu.
	last  uint32
	flows map[uint32]*list.Element
	by    map[client]*list.Element
	order *list.List // of *flow, the one that was used last at the end
}

// client is who sends, to which address.
type client struct {
	socket *socket
	from   netip.AddrPort
	to     string // control message that has an answer come from there
}

type flow struct {
	client
	id   uint32
	used time.Time
}

// New makes a relay that publishes nothing yet. A stream of the pod's datagrams (agentv1.Datagram)
// is opened for the first of them, and closed when there is no flow any more.
func New(open func(context.Context) (net.Conn, error), log *slog.Logger) *Relay {
	r := &Relay{open: open, log: log, idle: idle, sockets: map[*socket]bool{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Publish carries what comes at conn, which it owns from then on, to a port of the pod.
func (r *Relay) Publish(conn *net.UDPConn, port uint16) error {
	if err := tellDestination(conn); err != nil {
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

// Unpublish ends that for the socket with a local port. Its flows end with it.
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

// Close ends all, and waits for that.
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

// serve takes what clients send until the socket is closed.
func (r *Relay) serve(s *socket) {
	buf := make([]byte, agentv1.DatagramHeader+agentv1.MaxDatagram)
	control := make([]byte, 128)
	for {
		n, nc, _, from, err := s.ReadMsgUDPAddrPort(buf[agentv1.DatagramHeader:], control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of a datagram before: its client is gone, or out of reach
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

// stream returns the stream to the guest, nil where there is none.
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

// flowOf finds or makes the flow of a client. The one that was used the longest time ago makes
// room for another.
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

// write sends a datagram whose data follow the header's place in buf. A stream that fails is seen
// by receive.
func (g *guest) write(buf []byte, id uint32, port uint16, size int) {
	agentv1.PutDatagram(buf, id, port, size)
	g.out.Lock()
	defer g.out.Unlock()
	if _, err := g.conn.Write(buf[:agentv1.DatagramHeader+size]); err != nil {
		g.conn.Close()
	}
}
