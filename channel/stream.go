package channel

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// ErrClosed is returned by a stream that this side has closed.
var ErrClosed = net.ErrClosed

// stream is a yamux stream with a Close that is final, unblocks reads and writes, and does not block.
type stream struct {
	*yamux.Stream
	owner  *group
	once   sync.Once
	closed chan struct{}
	async  bool // Write returns on Close although yamux is still writing
}

func newStream(s *yamux.Stream, owner *group, async bool) *stream {
	return &stream{Stream: s, owner: owner, async: async, closed: make(chan struct{})}
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if n == 0 && err != nil {
		select {
		case <-s.closed:
			return 0, ErrClosed
		default:
		}
		if errors.Is(err, yamux.ErrSessionShutdown) {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// Write blocks while the other side does not read. A yamux write that waits for the connection cannot be cancelled. On
// the host a stalled guest must not block a caller, so there the write continues in a goroutine.
func (s *stream) Write(p []byte) (int, error) {
	select {
	case <-s.closed:
		return 0, ErrClosed
	default:
	}
	if !s.async {
		return s.Stream.Write(p)
	}
	type result struct {
		n   int
		err error
	}
	data := append([]byte(nil), p...)
	done := make(chan result, 1)
	s.owner.run(func() {
		n, err := s.Stream.Write(data)
		done <- result{n, err}
	})
	select {
	case r := <-done:
		return r.n, r.err
	case <-s.closed:
		return 0, ErrClosed
	}
}

// Close ends the stream for both sides.
func (s *stream) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.SetReadDeadline(time.Unix(1, 0))
		s.owner.run(func() { s.Stream.Close() })
	})
	return nil
}
