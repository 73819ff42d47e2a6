package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/channel/frame"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// message returns a message with that code, number and size. The rest is not zero.
func message(size int, code uint32, unique uint64) []byte {
	b := bytes.Repeat([]byte{0xa5}, size)
	binary.NativeEndian.PutUint32(b, uint32(size))
	binary.NativeEndian.PutUint32(b[4:], code)
	binary.NativeEndian.PutUint64(b[8:], unique)
	return b
}

// kernel replaces /dev/fuse: one message per read, and one per write.
type kernel struct{ asks, answers chan []byte }

func (k kernel) Read(p []byte) (int, error) {
	b, open := <-k.asks
	if !open {
		return 0, unix.ENODEV
	}
	return copy(p, b), nil
}

func (k kernel) Write(p []byte) (int, error) {
	k.answers <- bytes.Clone(p)
	return len(p), nil
}

// port is the guest's end of a virtio-serial port: a connection that may be replaced. Without one, reads return at once
// and writes wait.
type port struct {
	mu   sync.Mutex
	come sync.Cond
	conn net.Conn // nil while there is none
}

func newPort() *port {
	p := &port{}
	p.come.L = &p.mu
	return p
}

// plug connects a host, and returns its end.
func (p *port) plug(t *testing.T) net.Conn {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range pair {
		f := osFile(fd)
		ends[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	p.mu.Lock()
	p.conn = ends[1]
	p.come.Broadcast()
	p.mu.Unlock()
	t.Cleanup(func() { ends[0].Close(); ends[1].Close() })
	return ends[0]
}

func (p *port) Read(b []byte) (int, error) {
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	if conn == nil {
		return 0, io.EOF
	}
	n, err := conn.Read(b)
	if err != nil {
		p.lost(conn)
		return 0, io.EOF
	}
	return n, nil
}

func (p *port) Write(b []byte) (int, error) {
	for {
		p.mu.Lock()
		for p.conn == nil {
			p.come.Wait()
		}
		conn := p.conn
		p.mu.Unlock()
		if n, err := conn.Write(b); err == nil {
			return n, nil
		}
		p.lost(conn)
	}
}

func (p *port) lost(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == conn {
		p.conn = nil
	}
}

func greeted(t *testing.T, conn net.Conn) *Host {
	t.Helper()
	h, err := Greet(testdeadline.Context(t, 10*time.Second), conn)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// next returns the kernel's next answer.
func (k kernel) next(t *testing.T) []byte {
	t.Helper()
	select {
	case got := <-k.answers:
		return got
	case <-testdeadline.Context(t, 10*time.Second).Done():
		t.Fatal("the kernel is not answered")
		return nil
	}
}

func (k kernel) answered(t *testing.T, want []byte) {
	t.Helper()
	if got := k.next(t); !bytes.Equal(got, want) {
		t.Fatalf("the kernel is answered %d bytes % .24x, want %d bytes % .24x", len(got), got, len(want), want)
	}
}

func asked(t *testing.T, h *Host, want []byte) {
	t.Helper()
	got, err := h.Next()
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the host is asked %d bytes % .24x, want %d bytes % .24x: %v", len(got), got, len(want), want, err)
	}
}

// TestMessages: messages of every size travel both ways, and the next server goes on: open requests get an error, and
// later ones are served.
func TestMessages(t *testing.T) {
	t.Parallel()
	k, p := kernel{make(chan []byte, 8), make(chan []byte, 8)}, newPort()
	ended := make(chan error, 1)
	go func() { ended <- Forward(p, k, nil) }()
	conn := p.plug(t)
	h := greeted(t, conn)
	init := message(104, opInit, 2)
	k.asks <- init
	asked(t, h, init)
	if err := h.Reply(message(80, 0, 2)); err != nil {
		t.Fatal(err)
	}
	k.answered(t, message(80, 0, 2))
	for i, size := range []int{minRequest, 4096, frame.MaxPayload, frame.MaxPayload + 1, 3*frame.MaxPayload + 7, MaxMessage} {
		unique := uint64(2 * (i + 10))
		k.asks <- message(size, 15, unique)
		asked(t, h, message(size, 15, unique))
		if err := h.Reply(message(size, 0, unique)); err != nil {
			t.Fatal(err)
		}
		k.answered(t, message(size, 0, unique))
	}
	for _, silent := range []uint32{opForget, opBatchForget, opInterrupt} {
		k.asks <- message(48, silent, 900)
		asked(t, h, message(48, silent, 900))
	}
	// Two requests are open, one of them never read; then the server ends.
	k.asks <- message(64, 15, 100)
	asked(t, h, message(64, 15, 100))
	k.asks <- message(70_000, 16, 102)
	h.Close()

	next := greeted(t, p.plug(t))
	asked(t, next, init)
	if err := next.Reply(message(80, 0, 2)); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		for {
			b, err := next.Next()
			if err == nil {
				err = next.Reply(message(minReply, 0, uniqueOf(b)))
			}
			if err != nil {
				served <- err
				return
			}
		}
	}()
	k.asks <- message(50, 1, 104)
	got := map[uint64]int32{}
	for range 3 {
		reply := k.next(t)
		got[uniqueOf(reply)] = int32(codeOf(reply))
	}
	// The unread request is lost too, or goes to the next server.
	if lost := -int32(unix.EIO); got[100] != lost || got[102] != lost && got[102] != 0 || got[104] != 0 || len(got) != 3 {
		t.Errorf("answered are %v", got)
	}
	next.Close()
	<-served
	close(k.asks)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("at the mount's end: %v", err)
	}
}

// TestGreetEnds: a silent guest delays the greeting no longer than the context.
func TestGreetEnds(t *testing.T) {
	t.Parallel()
	conn := newPort().plug(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Greet(ctx, conn); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestHostileGuest: an invalid message ends the session, and uses no memory for its claimed length.
func TestHostileGuest(t *testing.T) {
	t.Parallel()
	for name, payloads := range map[string][][]byte{
		"shorter than a head":         {message(minRequest-1, 1, 1)},
		"a length below the head's":   {append([]byte{39, 0, 0, 0}, make([]byte, 60)...)},
		"a length beyond all":         {append([]byte{0xff, 0xff, 0xff, 0x7f}, make([]byte, 60)...)},
		"a length of nothing":         {make([]byte, 60)},
		"more than its length":        {append(message(60, 1, 1), 0)},
		"more than its length, later": {message(frame.MaxPayload+1, 1, 1)[:frame.MaxPayload], {1, 2}},
	} {
		a, b := net.Pipe()
		h := &Host{conn: a, d: frame.NewDecoder(a, false), epoch: 7}
		go func() {
			for _, payload := range payloads {
				_, _ = b.Write(frame.Append(nil, frame.Data, 7, payload))
			}
			b.Close()
		}()
		if m, err := h.Next(); !errors.Is(err, errGuest) {
			t.Errorf("%s: %d bytes, %v", name, len(m), err)
		}
		if cap(h.in.buf) > 2*frame.Max {
			t.Errorf("%s: it has taken %d bytes", name, cap(h.in.buf))
		}
		a.Close()
	}
}

// FuzzNext: no input makes the host panic, loop, or use more memory than has arrived.
func FuzzNext(f *testing.F) {
	f.Add(frame.Append(nil, frame.Data, 7, message(60, 1, 1)))
	f.Add(frame.Append(frame.Append(nil, frame.Data, 7, message(frame.MaxPayload+9, 1, 1)[:frame.MaxPayload]), frame.Data, 7, make([]byte, 9)))
	f.Add(frame.Append(nil, frame.Hello, 7, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &Host{d: frame.NewDecoder(bytes.NewReader(b), false), epoch: 7}
		for {
			m, err := h.Next()
			if err != nil {
				break
			}
			if len(m) < minRequest || len(m) > len(b) || lengthOf(m) != len(m) {
				t.Fatalf("a message of %d bytes", len(m))
			}
		}
		if cap(h.in.buf) > 2*len(b)+frame.Max {
			t.Fatalf("%d bytes for %d", cap(h.in.buf), len(b))
		}
	})
}
