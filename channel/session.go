package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// ErrTooMany is returned by Open when MaxStreams are open.
var ErrTooMany = errors.New("too many streams on the channel")

// Options configure a host's session.
type Options struct {
	// Hello is sent to the guest.
	Hello Hello
	// Resume tells that another host was connected to this running guest before, so that the guest may hold half a
	// frame. Without it such a guest answers a second later.
	Resume bool
	// Patience is Dial's wait for the answer over its first connection; each further connection gets twice as long. 0
	// is three seconds.
	Patience time.Duration
}

// defaultPatience is far more than a guest needs on an idle host.
const defaultPatience = 3 * time.Second

// Session is the host's side of one epoch. Its methods are safe for concurrent use. A paused VM keeps its session.
type Session struct {
	conn  net.Conn
	epoch uint64
	peer  Hello
	mux   *yamux.Session
	group group

	writeMu sync.Mutex // held while writing a frame to conn

	openMu  sync.Mutex
	opening int

	done   chan struct{}
	err    error // set before done is closed
	broken atomic.Pointer[error]
}

// Dial starts a session over a connection to a guest's port, which connect opens. It returns when the guest has
// answered or ctx ends. A silent guest may be waiting for an earlier connection to end, so Dial closes a connection
// without an answer and opens another.
func Dial(ctx context.Context, connect func(context.Context) (net.Conn, error), o Options) (*Session, error) {
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	for {
		once, cancel := context.WithTimeout(ctx, o.Patience)
		s, err := dial(once, connect, o)
		silent := once.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !silent {
			return s, err
		}
		o.Patience, o.Resume = 2*o.Patience, true
	}
}

// dial is Dial over one connection.
func dial(ctx context.Context, connect func(context.Context) (net.Conn, error), o Options) (*Session, error) {
	conn, err := connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	return Host(ctx, conn, o)
}

// Host starts a session over a connection, and owns the connection from then on.
func Host(ctx context.Context, conn net.Conn, o Options) (*Session, error) {
	epoch, err := newEpoch()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("channel: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	s := &Session{conn: conn, epoch: epoch, done: make(chan struct{})}
	d := frame.NewDecoder(conn, false)
	s.peer, err = greet(conn, d, s.epoch, o.Hello, o.Resume, func() bool { return ctx.Err() != nil })
	stop()
	if err == nil {
		err = ctx.Err() // ctx may have ended after the answer
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("the guest does not answer: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("channel: %w", err)
	}
	s.mux, err = yamux.Client(&hostConn{
		Writer: &framer{epoch: s.epoch, write: s.writeFrame},
		s:      s, d: d,
	}, muxConfig())
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("channel: %w", err)
	}
	go s.watch()
	return s, nil
}

func (s *Session) writeFrame(b []byte) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	_, err := s.conn.Write(b)
	if err != nil {
		s.broken.CompareAndSwap(nil, &err)
	}
	return err
}

// watch waits for the session's end.
func (s *Session) watch() {
	_, err := s.mux.AcceptStream() // the guard refuses streams of the guest
	if cause := s.broken.Load(); cause != nil {
		err = *cause
	}
	s.mux.Close()
	s.err = fmt.Errorf("channel: %w", err)
	close(s.done)
}

// Open opens a stream. Closing it ends it for both sides and unblocks reads and writes. A stream of an ended session
// reads io.EOF.
func (s *Session) Open(ctx context.Context) (net.Conn, error) {
	s.openMu.Lock()
	if s.mux.NumStreams()+s.opening >= MaxStreams {
		s.openMu.Unlock()
		return nil, fmt.Errorf("channel: %w: %d", ErrTooMany, MaxStreams)
	}
	s.opening++
	s.openMu.Unlock()
	type result struct {
		stream *yamux.Stream
		err    error
	}
	opened := make(chan result, 1)
	var lost atomic.Bool
	s.group.run(func() {
		y, err := s.mux.OpenStream() // blocks while the guest is stalled
		s.openMu.Lock()
		s.opening--
		s.openMu.Unlock()
		opened <- result{y, err}
		if lost.Load() && err == nil {
			y.Close()
		}
	})
	select {
	case r := <-opened:
		if r.err != nil {
			return nil, s.cause(r.err)
		}
		return newStream(r.stream, &s.group, true), nil
	case <-ctx.Done():
		lost.Store(true)
		select {
		case r := <-opened:
			if r.err == nil {
				newStream(r.stream, &s.group, true).Close()
			}
		default:
		}
		return nil, fmt.Errorf("channel: open a stream: %w", context.Cause(ctx))
	}
}

// cause returns the session's error once it has ended, otherwise err.
func (s *Session) cause(err error) error {
	select {
	case <-s.done:
		return s.err
	default:
		return fmt.Errorf("channel: %w", err)
	}
}

// Peer returns the guest's hello, which is hostile.
func (s *Session) Peer() Hello { return s.peer }

// Done returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Ended reports whether the session has ended or is ending. It is true before a stream fails because of that; Done is
// closed soon after.
func (s *Session) Ended() bool { return s.broken.Load() != nil || s.mux.IsClosed() }

// Err returns why the session ended, or nil before Done is closed. It matches ErrGuest if the guest broke the protocol.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Close ends the session and its streams, and returns when they are gone. The guest keeps unacknowledged data for the
// next session.
func (s *Session) Close() error {
	if s.writeMu.TryLock() { // no frame is partly written
		s.conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, _ = s.conn.Write(frame.Append(nil, frame.End, s.epoch)) // a courtesy
		s.writeMu.Unlock()
	}
	s.mux.Close()
	<-s.done
	s.group.wait()
	return nil
}

// hostConn is the connection that yamux uses.
type hostConn struct {
	io.Writer
	s     *Session
	d     *frame.Decoder
	guard guard
	rest  []byte
}

func (c *hostConn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		payload, err := c.next()
		if err != nil {
			c.s.broken.CompareAndSwap(nil, &err)
			return 0, err
		}
		c.rest = payload
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *hostConn) next() ([]byte, error) {
	f, err := c.d.Next()
	switch {
	case errors.Is(err, frame.ErrFraming):
		return nil, fmt.Errorf("%w: %w", ErrGuest, err)
	case errors.Is(err, io.EOF):
		return nil, errors.New("the VM closed the connection")
	case err != nil:
		return nil, err
	case f.Epoch != c.s.epoch:
		return nil, nil
	case f.Kind == frame.End:
		return nil, errors.New("the guest ended the session")
	case f.Kind != frame.Data:
		return nil, nil // the answer to a repeated hello
	}
	return f.Payload, c.guard.check(f.Payload)
}

// Close closes the VM's socket.
func (c *hostConn) Close() error { return c.s.conn.Close() }
