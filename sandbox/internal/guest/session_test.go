package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
)

// fakeGuest is the guest's end of a link's connections.
type fakeGuest struct {
	t       *testing.T
	version int
	deaf    bool // it never answers a hello
	conns   []*sniffed
}

func (g *fakeGuest) dial(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	if g.deaf {
		go io.Copy(io.Discard, far)
	} else {
		echo := func(c net.Conn) { io.Copy(c, c); c.Close() }
		go channel.Serve(g.t.Context(), newPort(far), channel.Hello{Version: g.version}, echo)
	}
	conn := &sniffed{Conn: near}
	g.conns = append(g.conns, conn)
	return conn, nil
}

// port is the guest's side of a pipe that buffers one frame, so that both sides can write at the same time.
type port struct {
	net.Conn
	out *io.PipeWriter
}

func newPort(far net.Conn) port {
	r, w := io.Pipe()
	go func() { io.Copy(far, r); r.Close() }()
	return port{far, w}
}

func (p port) Write(b []byte) (int, error) { return p.out.Write(b) }

func (p port) Close() error {
	p.out.Close()
	return p.Conn.Close()
}

// hangUp ends the last session from the guest's side.
func (g *fakeGuest) hangUp(s *channel.Session) {
	g.conns[len(g.conns)-1].Close()
	<-s.Done()
}

// resumed reports for each connection whether zeros precede its hello. They end half a frame of an earlier shim.
func (g *fakeGuest) resumed() []bool {
	var all []bool
	for _, c := range g.conns {
		all = append(all, c.wrote && c.first == 0)
	}
	return all
}

// sniffed records the first byte that is written to a connection.
type sniffed struct {
	net.Conn
	wrote bool
	first byte
}

func (c *sniffed) Write(p []byte) (int, error) {
	if !c.wrote && len(p) > 0 {
		c.wrote, c.first = true, p[0]
	}
	return c.Conn.Write(p)
}

func connect(t *testing.T, l *Link) *channel.Session {
	t.Helper()
	s, err := l.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLinkSession: a link keeps one session while it lives, and then opens another, which resumes after the earlier
// one.
func TestLinkSession(t *testing.T) {
	for _, resume := range []bool{false, true} {
		g := &fakeGuest{t: t, version: agentv1.Version}
		l := NewLink(g.dial, resume, 0, func(err error) { t.Error(err) })
		first := connect(t, l)
		if connect(t, l) != first {
			t.Error("a second session while the first one lives")
		}
		g.hangUp(first)
		second := connect(t, l)
		if second == first {
			t.Error("the ended session was returned again")
		}
		conn, err := l.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-second.Done()
		if got, want := g.resumed(), []bool{resume, true}; !slices.Equal(got, want) {
			t.Errorf("resumed %v, want %v", got, want)
		}
	}
}

// TestLinkVersion: the agent speaks this version of the protocol or the one before.
func TestLinkVersion(t *testing.T) {
	for by, spoken := range map[int]bool{-2: false, -1: true, 0: true, 1: false} {
		g := &fakeGuest{t: t, version: agentv1.Version + by}
		l := NewLink(g.dial, false, 0, func(err error) { t.Error(err) })
		_, err := l.Connect(t.Context())
		if (err == nil) != spoken || err != nil && !errors.Is(err, errdefs.ErrNotImplemented) {
			t.Errorf("version %d: %v", g.version, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLinkUsedUp: a guest that breaks too many sessions within a minute gets no further one. Earlier ones do not count.
func TestLinkUsedUp(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pause time.Duration // between the first broken session and the others
		spent bool
	}{
		{name: "at once", spent: true},
		{name: "within a minute", pause: time.Minute, spent: true},
		{name: "in more than a minute", pause: time.Minute + 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var broken error
			g := &fakeGuest{t: t, version: agentv1.Version}
			l := NewLink(g.dial, false, 0, func(err error) { broken = err })
			g.hangUp(connect(t, l))
			g.hangUp(connect(t, l))
			time.Sleep(tc.pause)
			for range MaxRedials - 1 {
				g.hangUp(connect(t, l))
			}
			if broken != nil {
				t.Errorf("%s: used up too early: %v", tc.name, broken)
			}
			_, err := l.Connect(t.Context())
			if errors.Is(err, errLinkBroken) != tc.spent || errors.Is(broken, errLinkBroken) != tc.spent {
				t.Errorf("%s: %v, broken: %v", tc.name, err, broken)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLinkPatience: the patience for a clone applies only to its first session.
func TestLinkPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGuest{t: t, version: agentv1.Version}
		l := NewLink(g.dial, false, time.Hour, func(err error) { t.Error(err) })
		g.deaf = true
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := l.Connect(ctx); !errors.Is(err, context.DeadlineExceeded) || len(g.conns) != 1 {
			t.Errorf("%d connections for the first session: %v", len(g.conns), err)
		}
		g.deaf = false
		g.hangUp(connect(t, l))
		g.deaf, g.conns = true, nil
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := l.Connect(ctx); !errors.Is(err, context.DeadlineExceeded) || len(g.conns) < 2 {
			t.Errorf("%d connections for the next session: %v", len(g.conns), err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestLinkInUse: a caller waits for another caller's connection only until its context ends.
func TestLinkInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGuest{t: t, deaf: true}
		l := NewLink(g.dial, false, time.Hour, func(err error) { t.Error(err) })
		ctx, cancel := context.WithCancel(t.Context())
		go l.Connect(ctx)
		synctest.Wait()
		why := errors.New("why")
		hasty, end := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer end()
		if _, err := l.Connect(hasty); !errors.Is(err, why) || len(g.conns) != 1 {
			t.Errorf("%d connections: %v", len(g.conns), err)
		}
		cancel()
		synctest.Wait()
	})
}
