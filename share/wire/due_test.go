package wire

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/channel/frame"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// gated is a port that blocks frames of a kind until it is opened.
type gated struct {
	*port
	kind atomic.Uint32 // 0 for none
	open chan struct{}
}

func (g *gated) Write(b []byte) (int, error) {
	if uint32(b[4]) == g.kind.Load() {
		<-g.open
	}
	return g.port.Write(b)
}

// TestReadsOn: the forwarder reads on while the port blocks its own messages, and sends them when the port accepts
// them.
func TestReadsOn(t *testing.T) {
	t.Parallel()
	const unique, size = 12, 3 * RingLeast
	lookup, other := about(opLookup, unique, 5), message(minRequest, 35, 14)
	clear(lookup[readCount:][:2]) // as the kernel has it
	clear(other[readCount:][:2])
	type session struct {
		*gated
		kernel
		*disk
		*Host
	}
	ring := func(s *session) bool {
		s.ring.mu.Lock()
		defer s.ring.mu.Unlock()
		return s.ring.on
	}
	used := func(t *testing.T, s *session) { // the request comes behind the guest's word
		if err := s.Offer(s.mem); err != nil {
			t.Fatal(err)
		}
		if err := s.Reply(message(minReply, 0, 0)); err != nil {
			t.Fatal(err)
		}
		s.answered(t, message(minReply, 0, 0))
		s.asks <- lookup
		asked(t, s.Host, lookup)
	}
	for name, tt := range map[string]struct {
		kind     frame.Kind
		do, then func(t *testing.T, s *session)
	}{
		"that it uses the ring": {frame.Note, func(t *testing.T, s *session) {
			if err := s.Offer(s.mem); err != nil {
				t.Fatal(err)
			}
		}, func(t *testing.T, s *session) {
			if !ring(s) {
				t.Error("it has not said so")
			}
		}},
		"that the ring is lost": {frame.Note, func(t *testing.T, s *session) {
			s.kind.Store(0)
			used(t, s)
			s.kind.Store(uint32(frame.Note))
			s.swap(nil)
			room := s.Room(size)
			copy(room.Buf, message(size, 0, unique))
			if err := s.Send(room, size); err != nil || room.at == 0 {
				t.Fatal(room.at, err)
			}
		}, func(t *testing.T, s *session) {
			if ring(s) {
				t.Error("it has not said so")
			}
		}},
		"that it is there, once more": {frame.Answer, func(t *testing.T, s *session) {
			if _, err := s.conn.Write(frame.Append(nil, frame.Hello, s.epoch, []byte{version})); err != nil {
				t.Fatal(err)
			}
		}, func(*testing.T, *session) {}},
		"a former server's request": {frame.Data, func(t *testing.T, s *session) {
			s.kind.Store(0)
			s.asks <- lookup
			asked(t, s.Host, lookup)
			s.Close()
			s.kind.Store(uint32(frame.Data))
			s.Host = greeted(t, s.plug(t))
		}, func(t *testing.T, s *session) { asked(t, s.Host, lookup) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{
				&gated{port: newPort(), open: make(chan struct{})}, kernel{make(chan []byte, 8), make(chan []byte, 8)},
				&disk{mem: make([]byte, RingSize)}, nil,
			}
			ended := make(chan error, 1)
			go func() { ended <- Forward(s.gated, s.kernel, s.disk) }()
			s.Host = greeted(t, s.plug(t))
			s.kind.Store(uint32(tt.kind))
			tt.do(t, s)
			notice := message(64, 0, 0)
			if err := s.Reply(notice); err != nil {
				t.Fatal(err)
			}
			s.answered(t, notice)
			close(s.open)
			if tt.kind != frame.Data {
				s.asks <- other
				asked(t, s.Host, other)
			}
			tt.then(t, s)
			close(s.asks)
			if err := <-ended; !errors.Is(err, io.EOF) {
				t.Errorf("at the mount's end: %v", err)
			}
		})
	}
}

// TestBothWays: a host that reads a long request only after its own answers were read can send these.
func TestBothWays(t *testing.T) {
	t.Parallel()
	k, p := kernel{make(chan []byte, 8), make(chan []byte, 8)}, newPort()
	ended := make(chan error, 1)
	mem := make([]byte, RingSize)
	go func() { ended <- Forward(p, k, &disk{mem: mem}) }()
	conn := p.plug(t)
	h := greeted(t, conn)
	long := message(MaxMessage, 16, 2)
	clear(long[readCount:][:2])
	k.asks <- long
	first := make([]byte, 1)
	if _, err := conn.Read(first); err != nil { // the port has begun to take it
		t.Fatal(err)
	}
	deadline, _ := testdeadline.Context(t, 10*time.Second).Deadline()
	if err := conn.SetWriteDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	if err := h.Offer(mem); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if err := h.Reply(message(MaxMessage, 0, 0)); err != nil {
			t.Fatal(err)
		}
		k.answered(t, message(MaxMessage, 0, 0))
	}
	h.d = frame.NewDecoder(io.MultiReader(bytes.NewReader(first), conn), false)
	asked(t, h, long)
	h.Close()
	close(k.asks)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("at the mount's end: %v", err)
	}
}

// TestRepeatsEnd: a request whose answer kills servers is repeated a limited number of times, and then gets an error.
func TestRepeatsEnd(t *testing.T) {
	t.Parallel()
	k, p := kernel{make(chan []byte, 8), make(chan []byte, 8)}, newPort()
	ended := make(chan error, 1)
	go func() { ended <- Forward(p, k, nil) }()
	lookup := about(opLookup, 12, 5)
	h := greeted(t, p.plug(t))
	k.asks <- lookup
	for range 1 + 8 {
		asked(t, h, lookup)
		h.Close()
		h = greeted(t, p.plug(t))
	}
	if errno := k.nextError(t, 12); errno != unix.EIO {
		t.Error(errno)
	}
	k.asks <- about(opLookup, 14, 5)
	asked(t, h, about(opLookup, 14, 5))
	h.Close()
	close(k.asks)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("at the mount's end: %v", err)
	}
}
