package channel_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/channel"
)

// port models the virtio port. The guest's end stays when the host's end is replaced. Reads and writes wait for the
// next host. Unread data in a host's socket is lost with it.
type port struct {
	mu   sync.Mutex
	cond *sync.Cond
	conn net.Conn
	shut bool
}

func newPort() *port {
	p := &port{}
	p.cond = sync.NewCond(&p.mu)
	return p
}

// connect attaches a new host and returns its end.
func (p *port) connect(t testing.TB) net.Conn {
	t.Helper()
	host, guest := pair(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.Close()
	}
	p.conn = guest
	p.cond.Broadcast()
	return host
}

func (p *port) current(old net.Conn) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.shut && (p.conn == nil || p.conn == old) {
		p.cond.Wait()
	}
	if p.shut {
		return nil
	}
	return p.conn
}

func (p *port) Read(b []byte) (int, error) {
	var old net.Conn
	for {
		c := p.current(old)
		if c == nil {
			return 0, os.ErrClosed
		}
		if n, err := c.Read(b); err == nil {
			return n, nil
		}
		old = c
	}
}

func (p *port) Write(b []byte) (int, error) {
	var old net.Conn
	total := len(b)
	for len(b) > 0 {
		c := p.current(old)
		if c == nil {
			return 0, os.ErrClosed
		}
		n, err := c.Write(b)
		b = b[n:]
		if err != nil {
			old = c
		}
	}
	return total, nil
}

func (p *port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = true
	if p.conn != nil {
		p.conn.Close()
	}
	p.cond.Broadcast()
	return nil
}

func pair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		conns[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conns[i].Close() })
	}
	return conns[0], conns[1]
}

// guest serves p until the test ends.
func guest(t testing.TB, p *port, handler func(net.Conn)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- channel.Serve(ctx, p, channel.Hello{Version: 7, Build: "test"}, handler) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Error("Serve does not return")
		}
	})
}

func echo(c net.Conn) {
	defer c.Close()
	io.Copy(c, c)
}

func timeout(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func host(t testing.TB, conn net.Conn, o channel.Options) *channel.Session {
	t.Helper()
	s, err := channel.Host(timeout(t, 10*time.Second), conn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// roundTrip sends n random bytes over a new stream and expects them back.
func roundTrip(t testing.TB, s *channel.Session, n int) {
	t.Helper()
	c, err := s.Open(timeout(t, 5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent, got := make([]byte, n), make([]byte, n)
	rand.Read(sent)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		wrote <- err
	}()
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sent, got) {
		t.Fatal("different bytes came back")
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	p := newPort()
	guest(t, p, echo)
	s := host(t, p.connect(t), channel.Options{})
	if got := s.Peer(); got.Version != 7 || got.Build != "test" {
		t.Errorf("peer = %+v", got)
	}
	for _, n := range []int{1, 100, 40 << 10, 3 << 20} {
		roundTrip(t, s, n)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { roundTrip(t, s, 100<<10) })
	}
	wg.Wait()
	s.Close()
	if s.Err() == nil {
		t.Error("a closed session has no error")
	}
	if _, err := s.Open(context.Background()); err == nil {
		t.Error("a closed session opens streams")
	}
}

// TestReconnect replaces the host repeatedly during traffic, like kill -9, with half a frame left in the guest.
func TestReconnect(t *testing.T) {
	t.Parallel()
	p := newPort()
	guest(t, p, echo)
	for i := range 6 {
		conn := p.connect(t)
		began := time.Now()
		s := host(t, conn, channel.Options{Resume: i%2 == 1})
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("session %d took %v", i, took)
		}
		roundTrip(t, s, 64<<10)
		c, err := s.Open(timeout(t, time.Second))
		if err != nil {
			t.Fatal(err)
		}
		go func() { // keeps both directions busy until the cut
			for {
				if _, err := c.Write(make([]byte, 30<<10)); err != nil {
					return
				}
			}
		}()
		io.CopyN(io.Discard, c, 200<<10)
		// The start of a frame that claims more bytes than follow.
		conn.Write([]byte{0xB5, 'k', 'h', 0xD1, 3, 0, 0x70, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
		conn.(*net.UnixConn).CloseWrite()
	}
}
