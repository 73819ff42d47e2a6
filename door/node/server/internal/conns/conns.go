// Package conns limits the connections of an API that any client can reach. A connection is unknown until a request on
// it has been authorised. Unknown connections are few and short-lived, so they cannot lock out other clients. Known
// connections have a limit of their own.
//
// A server uses a Gate in four places. Listen wraps the listener, Context is the server's ConnContext, LimitReview
// wraps the handler that authorises requests, and Admit wraps the handler of authorised requests.
package conns

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Limits are the limits of a Gate. All are required.
type Limits struct {
	// Known and Unknown are the maximum numbers of connections of each kind. A further unknown connection closes the
	// oldest unknown one.
	Known, Unknown int
	// Source is the maximum number of unknown connections from one address, or from one /64 of IPv6. More are closed at
	// once.
	Source int
	// Request is the time until an unknown connection must have sent the header of its first request.
	Request time.Duration
	// Review is the time from then on until it must be known.
	Review time.Duration
}

// Gate counts connections. It is safe for concurrent use.
type Gate struct {
	limits Limits

	mu      sync.Mutex
	unknown *list.List // of *conn, oldest first
	sources map[netip.Prefix]int
	known   int
}

// New returns a gate without connections.
func New(limits Limits) *Gate {
	return &Gate{limits: limits, unknown: list.New(), sources: map[netip.Prefix]int{}}
}

// conn is one connection. The gate's mu guards its fields.
type conn struct {
	net.Conn
	gate    *Gate
	source  netip.Prefix
	place   *list.Element // in Gate.unknown; nil if known or closed
	known   bool
	limited bool
	timer   *time.Timer // closes an unknown connection
	close   func() error
}

// Close closes the connection and frees its place.
func (c *conn) Close() error { return c.close() }

// Listen returns a listener that accepts connections from l within the limits and closes the rest.
func (g *Gate) Listen(l net.Listener) net.Listener { return &listener{l, g} }

type listener struct {
	net.Listener
	gate *Gate
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.gate.add(accepted); c != nil {
			return c, nil
		}
		_ = accepted.Close() // too many from this source
	}
}

// add counts a new connection, or returns nil if its source has too many.
func (g *Gate) add(accepted net.Conn) *conn {
	c := &conn{Conn: accepted, gate: g, source: sourceOf(accepted)}
	c.close = sync.OnceValue(func() error {
		g.remove(c)
		return accepted.Close()
	})
	oldest, entered := g.admit(c)
	if oldest != nil {
		_ = oldest.Close()
	}
	if !entered {
		return nil
	}
	return c
}

func (g *Gate) admit(c *conn) (oldest *conn, entered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sources[c.source] >= g.limits.Source {
		return nil, false
	}
	if g.unknown.Len() >= g.limits.Unknown {
		oldest = g.unknown.Front().Value.(*conn)
		g.forget(oldest)
	}
	c.place = g.unknown.PushBack(c)
	g.sources[c.source]++
	c.timer = time.AfterFunc(g.limits.Request, func() { _ = c.Close() })
	return oldest, true
}

// forget removes a connection from the unknown ones. The caller holds mu.
func (g *Gate) forget(c *conn) {
	if c.place == nil {
		return
	}
	g.unknown.Remove(c.place)
	c.place = nil
	c.timer.Stop()
	if g.sources[c.source]--; g.sources[c.source] == 0 {
		delete(g.sources, c.source)
	}
}

func (g *Gate) remove(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(c)
	if c.known {
		c.known = false
		g.known--
	}
}

// sourceOf returns the address range that a connection counts for.
func sourceOf(c net.Conn) netip.Prefix {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{} // not TCP
	}
	bits := 32
	address := at.Addr().Unmap().WithZone("")
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits) // cannot fail: the address has so many bits
	return prefix
}

type key struct{}

// Context implements http.Server.ConnContext.
func (g *Gate) Context(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, key{}, c)
}

func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(key{}).(*conn)
	return c
}

// LimitReview starts the time limit for the review at a connection's first request.
func (g *Gate) LimitReview(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connOf(r); c != nil {
			g.limitReview(c)
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Gate) limitReview(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.place != nil && !c.limited {
		c.limited = true
		c.timer.Reset(g.limits.Review)
	}
}

// Admit makes the connection of a request known. If there are too many known ones, it answers 503.
func (g *Gate) Admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connOf(r); c != nil {
			if err := g.markKnown(c); err != nil {
				w.Header().Set("Connection", "close")
				w.Header().Set("Retry-After", "1")
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Gate) markKnown(c *conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.known || c.place == nil {
		return nil // already known, or closed meanwhile
	}
	if g.known >= g.limits.Known {
		return errors.New("too many connections of known clients: close some")
	}
	g.forget(c)
	c.known = true
	g.known++
	return nil
}
