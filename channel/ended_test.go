package channel_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/channel"
)

var errTorn = errors.New("torn")

// torn is a connection with writes that fail once it is torn. Its reads fail only on request.
type torn struct {
	net.Conn
	writes atomic.Bool // fail
	reads  chan struct{}
}

func (c *torn) Write(b []byte) (int, error) {
	if c.writes.Load() {
		return 0, errTorn
	}
	return c.Conn.Write(b)
}

func (c *torn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		<-c.reads
	}
	return n, err
}

// TestEnded: Ended is true before a stream fails because of the session's end, however long the end takes. It is false
// if the guest has ended only the stream.
func TestEnded(t *testing.T) {
	t.Parallel()
	p := newPort()
	guest(t, p, func(c net.Conn) { io.ReadFull(c, make([]byte, 1)); c.Close() })
	conn := &torn{Conn: p.connect(t), reads: make(chan struct{})}
	s := host(t, conn, channel.Options{})
	let := sync.OnceFunc(func() { close(conn.reads) })
	defer let()
	c, err := s.Open(timeout(t, 10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || s.Ended() {
		t.Errorf("the guest ends a stream: %v, session ended: %v", err, s.Ended())
	}
	if c, err = s.Open(timeout(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	conn.writes.Store(true)
	if _, err := c.Write([]byte("x")); !errors.Is(err, errTorn) || !s.Ended() {
		t.Errorf("a write over a torn connection: %v, session ended: %v", err, s.Ended())
	}
	select {
	case <-s.Done():
		t.Error("the session is done although a read of it goes on")
	default:
	}
	let()
	<-s.Done()
	if !errors.Is(s.Err(), errTorn) {
		t.Errorf("ended by %v", s.Err())
	}
}
