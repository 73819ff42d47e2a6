package datagrams

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// echo is a guest that returns each datagram and keeps a list of flows.
type echo struct {
	mu     sync.Mutex
	opened int
	flows  []uint32
	most   int
	ended  chan uint32
	refuse bool
	also   []agentv1.Datagram // additional answers
}

func (e *echo) open(context.Context) (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opened++; e.refuse {
		return nil, errors.New("no guest")
	}
	host, guest := net.Pipe()
	go e.serve(guest)
	return host, nil
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, agentv1.MaxDatagram)
	for {
		d, err := agentv1.ReadDatagram(conn, buf)
		if err != nil {
			return
		}
		e.mu.Lock()
		if d.Port == 0 {
			e.flows = slices.DeleteFunc(e.flows, func(id uint32) bool { return id == d.Flow })
			e.mu.Unlock()
			if e.ended != nil {
				e.ended <- d.Flow
			}
			continue
		}
		if !slices.Contains(e.flows, d.Flow) {
			e.flows = append(e.flows, d.Flow)
		}
		e.most = max(e.most, len(e.flows))
		answers := append(slices.Clone(e.also), d)
		e.mu.Unlock()
		for _, a := range answers {
			frame := make([]byte, agentv1.DatagramHeader+len(a.Data))
			agentv1.PutDatagram(frame, a.Flow, a.Port, len(a.Data))
			copy(frame[agentv1.DatagramHeader:], a.Data)
			if _, err := conn.Write(frame); err != nil {
				return
			}
		}
	}
}

func (e *echo) count() (opened, flows int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opened, len(e.flows)
}

// publish creates a relay and publishes a port of this host.
func publish(t *testing.T, e *echo, idle time.Duration, address string) (r *Relay, at *net.UDPAddr) {
	t.Helper()
	r = New(e.open, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(r.Close)
	r.idle = idle
	return r, more(t, r, address)
}

func more(t *testing.T, r *Relay, address string) *net.UDPAddr {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	if err != nil {
		t.Fatal(err)
	}
	at := conn.LocalAddr().(*net.UDPAddr)
	if err := r.Publish(conn, 53); err != nil {
		t.Fatal(err)
	}
	return at
}

// dial returns a client.
func dial(t *testing.T, network string, to *net.UDPAddr) *net.UDPConn {
	t.Helper()
	conn, err := net.DialUDP(network, nil, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func ask(t *testing.T, conn *net.UDPConn, question []byte) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(testdeadline.For(10 * time.Second))); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(question); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, agentv1.MaxDatagram)
	n, err := conn.Read(buf)
	if err != nil || !bytes.Equal(buf[:n], question) {
		t.Errorf("%d bytes are answered with %d, %v", len(question), n, err)
	}
}

// TestRelay checks that each client gets its own datagrams of all sizes, from its destination address.
func TestRelay(t *testing.T) {
	t.Parallel()
	e := &echo{}
	_, at := publish(t, e, time.Minute, "[::]:0")
	for _, ip := range []string{"127.0.0.1", "127.0.0.9", "::1"} {
		for range 2 {
			conn := dial(t, "udp", &net.UDPAddr{IP: net.ParseIP(ip), Port: at.Port})
			for _, size := range []int{0, 1, 1472, 65507} {
				ask(t, conn, bytes.Repeat([]byte(ip[:1]), size))
			}
		}
	}
	if opened, flows := e.count(); opened != 1 || flows != 6 {
		t.Errorf("%d streams, %d flows", opened, flows)
	}
}

// TestRelayOfOneKind checks that an IPv4 socket answers from the right address as well.
func TestRelayOfOneKind(t *testing.T) {
	t.Parallel()
	_, at := publish(t, &echo{}, time.Minute, "0.0.0.0:0")
	ask(t, dial(t, "udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 7), Port: at.Port}), []byte("hello"))
}

// TestManyFlows checks that clients that never return do not evict an active one.
func TestManyFlows(t *testing.T) {
	t.Parallel()
	e := &echo{}
	_, at := publish(t, e, time.Minute, "127.0.0.1:0")
	stays := dial(t, "udp", at)
	ask(t, stays, []byte("first"))
	for range 3 * agentv1.MaxFlows {
		conn := dial(t, "udp", at)
		ask(t, conn, []byte("once"))
		conn.Close()
		ask(t, stays, []byte("again"))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.most > agentv1.MaxFlows || !slices.Contains(e.flows, 1) {
		t.Errorf("the guest had up to %d flows; the first one is left: %v", e.most, slices.Contains(e.flows, 1))
	}
}

// TestIdle checks that idle flows end, that a closed socket ends its flows, and that the stream ends with the last
// flow.
func TestIdle(t *testing.T) {
	t.Parallel()
	e := &echo{ended: make(chan uint32, 10)}
	r, at := publish(t, e, 400*time.Millisecond, "127.0.0.1:0")
	other := more(t, r, "127.0.0.1:0")
	one, two := dial(t, "udp", at), dial(t, "udp", other)
	ask(t, one, []byte("one"))
	ask(t, two, []byte("two"))
	r.Unpublish(other.Port)
	for ended := false; !ended; {
		ask(t, one, []byte("one"))
		select {
		case id := <-e.ended:
			if ended = true; id != 2 {
				t.Errorf("flow %d has ended", id)
			}
		default:
		}
	}
	if _, err := two.Write([]byte("nobody")); err == nil {
		if _, err = two.Read(make([]byte, 1)); err == nil {
			t.Error("an unpublished port answers")
		}
	}
	ctx := testdeadline.Context(t, 10*time.Second)
	for gone := false; !gone; {
		r.mu.Lock()
		gone = r.guest == nil
		r.mu.Unlock()
		if ctx.Err() != nil {
			t.Fatal("the stream stays")
		}
	}
	ask(t, one, []byte("one"))
	if opened, _ := e.count(); opened != 2 {
		t.Errorf("%d streams", opened)
	}
}

// TestHostileGuest checks that answers for unknown flows are dropped, and that a truncated answer ends only the
// stream.
func TestHostileGuest(t *testing.T) {
	t.Parallel()
	e := &echo{also: []agentv1.Datagram{
		{Flow: 0, Port: 1, Data: []byte("x")}, {Flow: 77, Port: 1, Data: []byte("x")}, {Flow: 1, Port: 0, Data: []byte("x")},
	}}
	_, at := publish(t, e, time.Minute, "127.0.0.1:0")
	conn := dial(t, "udp", at)
	for range 3 {
		ask(t, conn, []byte("question"))
	}
}

// TestNoGuest checks that a missing guest causes at most one attempt per second.
func TestNoGuest(t *testing.T) {
	t.Parallel()
	e := &echo{refuse: true}
	r, at := publish(t, e, time.Minute, "127.0.0.1:0")
	conn := dial(t, "udp", at)
	begun := time.Now()
	for range 1000 {
		if _, err := conn.Write([]byte(strings.Repeat("x", 100))); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	if most := 1 + int(time.Since(begun)/retry); e.opened > most { // no more attempts
		t.Errorf("%d attempts", e.opened)
	}
	l, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(l, 1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("publish after the end: %v", err)
	}
}
