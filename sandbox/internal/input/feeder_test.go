package input

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
)

// agent reads the input of one process, over any number of sessions.
type agent struct {
	listen net.Listener
	conns  []*torn       // of the host, in order
	first  chan struct{} // closed when the first bytes have come

	mu     sync.Mutex
	got    []byte
	began  bool
	enough int // bytes after which it ends the stream; 0 is never
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{listen: l, first: make(chan struct{})}
	var served sync.WaitGroup
	t.Cleanup(served.Wait)
	t.Cleanup(func() { l.Close() })
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				channel.Serve(t.Context(), conn, channel.Hello{Version: agentv1.Version}, func(c net.Conn) {
					agentv1.Serve(t.Context(), c, agentv1.Handlers{agentv1.OpInput: a.input})
				})
			})
		}
	})
	return a
}

func (a *agent) input(_ context.Context, s *agentv1.Stream) error {
	var r agentv1.Input
	if err := json.Unmarshal(s.Body, &r); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock() // a newer stream waits for this one's end
	if err := s.Reply(agentv1.Offset{Offset: int64(len(a.got))}); err != nil {
		return err
	}
	buf := make([]byte, agentv1.MaxChunk)
	for a.enough == 0 || len(a.got) < a.enough {
		data, err := agentv1.ReadChunk(s, buf)
		if err != nil {
			return err
		}
		if !a.began {
			a.began = true
			close(a.first)
		}
		a.got = append(a.got, data...)
		if err := agentv1.WriteAck(s, int64(len(a.got))); err != nil {
			return err
		}
	}
	return nil
}

func (a *agent) dial(context.Context) (net.Conn, error) {
	conn, err := net.Dial("unix", a.listen.Addr().String())
	if err != nil {
		return nil, err
	}
	c := &torn{Conn: conn, given: make(chan struct{})}
	a.conns = append(a.conns, c)
	return c, nil
}

// feeder returns a feeder of a's process.
func (a *agent) feeder(t *testing.T) *Feeder {
	link := guest.NewLink(a.dial, false, 0, func(err error) { t.Error(err) })
	t.Cleanup(func() { link.Close() })
	return &Feeder{Agent: agentv1.NewClient(link.Open), Link: link}
}

// torn is a connection with writes that fail once it is cut. Its reads fail only when the session that uses it is
// closed.
type torn struct {
	net.Conn
	mu    sync.Mutex
	isCut bool
	once  sync.Once
	given chan struct{}
}

func (c *torn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
}

func (c *torn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(b)
}

func (c *torn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	late := c.isCut
	c.mu.Unlock()
	if err != nil && late {
		<-c.given
	}
	return n, err
}

// SetWriteDeadline starts the end of a session.
func (c *torn) SetWriteDeadline(at time.Time) error {
	c.once.Do(func() { close(c.given) })
	return c.Conn.SetWriteDeadline(at)
}

// TestCutIsNoticedLate: input continues on a new session even if the old session ends later than its streams.
func TestCutIsNoticedLate(t *testing.T) {
	a := newAgent(t)
	f := a.feeder(t)
	ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(10*time.Second))
	defer cancel()
	r, w := io.Pipe()
	passed := make(chan error, 1)
	go func() { passed <- f.Pass(ctx, r); r.Close() }()
	io.WriteString(w, "one ")
	select {
	case <-a.first:
	case err := <-passed:
		t.Fatal(err)
	}
	a.conns[0].cut()
	io.WriteString(w, "two")
	w.Close()
	if err := <-passed; !errors.Is(err, io.EOF) {
		t.Fatalf("passed on: %v", err)
	}
	// The agent ends the stream with the input, perhaps before CloseInput returns.
	if err := f.CloseInput(ctx); err != nil && !errors.Is(err, ErrNoInput) {
		t.Fatal(err)
	}
	f.Drain(ctx)
	f.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	if string(a.got) != "one two" || len(a.conns) != 2 {
		t.Errorf("%q arrived over %d connections", a.got, len(a.conns))
	}
}

// TestStreamEndsAlone: a process that closes its stdin gets no new stream.
func TestStreamEndsAlone(t *testing.T) {
	a := newAgent(t)
	a.enough = 3
	f := a.feeder(t)
	ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(10*time.Second))
	defer cancel()
	r, w := io.Pipe()
	go io.WriteString(w, "one")
	if err := f.Pass(ctx, r); !errors.Is(err, ErrNoInput) {
		t.Errorf("passed on: %v", err)
	}
	f.Close()
	r.Close()
	if len(a.conns) != 1 {
		t.Errorf("%d connections", len(a.conns))
	}
}

// TestTooManyStreams: input waits for a stream.
func TestTooManyStreams(t *testing.T) {
	a := newAgent(t)
	f := a.feeder(t)
	full := 2
	f.Agent = agentv1.NewClient(func(ctx context.Context) (net.Conn, error) {
		if full--; full >= 0 {
			return nil, fmt.Errorf("open: %w", channel.ErrTooMany)
		}
		return f.Link.Open(ctx)
	})
	ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(10*time.Second))
	defer cancel()
	if err := f.Open(ctx); err != nil {
		t.Errorf("Open: got %v", err)
	}
	f.Close()
}

// TestOpenContinues: a feeder sends only the bytes that the guest lacks of an earlier feeder's input.
func TestOpenContinues(t *testing.T) {
	for _, tc := range []struct {
		name    string
		got     string // by the agent before
		sent    int64
		unacked string
		want    string
		at      int64 // Sent after Open
		err     error
	}{
		{name: "nothing before", want: "!", at: 0},
		{name: "all arrived", got: "one two", sent: 7, unacked: "two", want: "one two!", at: 7},
		{name: "a part arrived", got: "one t", sent: 7, unacked: "one two", want: "one two!", at: 7},
		{name: "another feeder's input", got: "one", want: "one!", at: 3},
		{name: "too little is known", got: "on", sent: 7, unacked: "two", err: ErrNoInput},
		{name: "more arrived than was sent", got: "one two", sent: 3, unacked: "one", err: ErrNoInput},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAgent(t)
			a.got = []byte(tc.got)
			a.enough = len(tc.want) // the stream's end shows that all has arrived
			f := a.feeder(t)
			f.Sent, f.Unacked = tc.sent, []byte(tc.unacked)
			ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(10*time.Second))
			defer cancel()
			defer f.Close()
			if err := f.Open(ctx); !errors.Is(err, tc.err) {
				t.Fatalf("Open: got %v, want %v", err, tc.err)
			}
			if tc.err != nil {
				return
			}
			if f.Sent != tc.at {
				t.Errorf("Sent: got %d, want %d", f.Sent, tc.at)
			}
			// The agent ends the stream with the last byte, perhaps before write returns.
			if err := f.write(ctx, []byte("!")); err != nil && !errors.Is(err, ErrNoInput) {
				t.Fatal(err)
			}
			f.Drain(ctx)
			a.mu.Lock()
			defer a.mu.Unlock()
			if string(a.got) != tc.want {
				t.Errorf("the agent has %q, want %q", a.got, tc.want)
			}
		})
	}
}
