package conns

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// peer is one end of a pipe with a remote address.
type peer struct {
	net.Conn
	from string
}

func (p peer) RemoteAddr() net.Addr {
	address, _ := net.ResolveTCPAddr("tcp", p.from)
	return address
}

// gate is a Gate with pipes as connections.
type gate struct {
	*Gate
	t *testing.T
}

var small = Limits{Known: 2, Unknown: 4, Source: 3, Request: 5 * time.Second, Review: 20 * time.Second}

func inGate(t *testing.T, test func(*testing.T, gate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, gate{New(small), t}) })
}

// open accepts one connection and returns it with its client's request. It returns nil if the gate refuses it.
func (g gate) open(from string) (*conn, *http.Request) {
	g.t.Helper()
	client, server := net.Pipe()
	g.t.Cleanup(func() { client.Close() })
	c := g.add(peer{server, from})
	if c == nil {
		return nil, nil
	}
	g.t.Cleanup(func() { c.Close() })
	return c, httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(g.Context(g.t.Context(), c))
}

func (g gate) ask(r *http.Request) int {
	w := httptest.NewRecorder()
	g.LimitReview(g.Admit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))).ServeHTTP(w, r)
	return w.Code
}

func isClosed(c *conn) bool {
	c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.ErrClosedPipe)
}

func TestUnknownConnectionsEnd(t *testing.T) {
	inGate(t, func(t *testing.T, g gate) {
		idle, _ := g.open("192.0.2.1:1")
		judged, r := g.open("192.0.2.1:2")
		known, asked := g.open("192.0.2.1:3")
		if code := g.ask(asked); code != http.StatusOK {
			t.Fatal(code)
		}
		g.LimitReview(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		time.Sleep(6 * time.Second)
		if !isClosed(idle) || isClosed(judged) || isClosed(known) {
			t.Errorf("after 6 s: %v %v %v", isClosed(idle), isClosed(judged), isClosed(known))
		}
		g.LimitReview(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r) // does not extend its time
		time.Sleep(15 * time.Second)
		if !isClosed(judged) || isClosed(known) {
			t.Errorf("after 21 s: %v %v", isClosed(judged), isClosed(known))
		}
	})
}

func TestPlaces(t *testing.T) {
	inGate(t, func(t *testing.T, g gate) {
		var first *conn
		for i := range 3 {
			c, _ := g.open("[2001:db8::1]:1")
			if c == nil {
				t.Fatalf("no place for connection %d", i)
			}
			if first == nil {
				first = c
			}
		}
		if c, _ := g.open("[2001:db8::2]:1"); c != nil {
			t.Error("one source has more than its places")
		}
		g.open("192.0.2.1:1")
		if _, r := g.open("192.0.2.2:1"); r == nil || !isClosed(first) {
			t.Errorf("the oldest unknown connection does not make room: %v", r)
		}
		if c, _ := g.open("[2001:db8::1]:1"); c == nil {
			t.Error("a place was not freed")
		}
	})
}

func TestKnownConnectionsAreBounded(t *testing.T) {
	inGate(t, func(t *testing.T, g gate) {
		first, r := g.open("192.0.2.1:1")
		_, second := g.open("192.0.2.1:2")
		_, third := g.open("192.0.2.1:3")
		if a, b, again, c := g.ask(r), g.ask(second), g.ask(r), g.ask(third); a != 200 || b != 200 || again != 200 || c != 503 {
			t.Errorf("%d %d %d %d", a, b, again, c)
		}
		first.Close()
		first.Close()
		if code := g.ask(third); code != http.StatusOK {
			t.Errorf("code %d after one connection was closed", code)
		}
		if g.known != 2 || len(g.sources) != 0 {
			t.Errorf("%d known, sources %v", g.known, g.sources)
		}
	})
}

// TestAtOnce checks that all methods are safe for concurrent use.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	g := gate{New(small), t}
	var all sync.WaitGroup
	for range 50 {
		client, server := net.Pipe()
		all.Go(func() {
			defer client.Close()
			c := g.add(peer{server, "192.0.2.1:1"})
			if c == nil {
				return
			}
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(g.Context(context.Background(), c))
			g.ask(r)
			c.Close()
		})
	}
	all.Wait()
	if g.known != 0 || g.unknown.Len() != 0 || len(g.sources) != 0 {
		t.Errorf("%d known, %d unknown, sources %v", g.known, g.unknown.Len(), g.sources)
	}
}
