package agentv1

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// OutputStream carries what a process writes. Next is for one goroutine; Ack
// and Close may be called from any.
type OutputStream struct {
	conn   net.Conn
	stop   func() bool
	offset int64
	buf    []byte
	ackMu  sync.Mutex
}

// Output asks for a stream of a process. The context covers the whole life of
// the stream: when it ends, Next fails.
func (c *Client) Output(ctx context.Context, r Output) (*OutputStream, error) {
	var at Offset
	conn, stop, err := c.begin(ctx, OpOutput, r, &at)
	if err != nil {
		return nil, err
	}
	if at.Offset < r.Offset {
		stop()
		conn.Close()
		return nil, fmt.Errorf("agent %s: offset %d is before the requested %d", OpOutput, at.Offset, r.Offset)
	}
	return &OutputStream{conn: conn, stop: stop, offset: at.Offset, buf: make([]byte, MaxChunk)}, nil
}

// Next returns the next bytes and the offset of the first of them. The data is
// valid until the next call. It returns io.EOF after the last byte that the
// process and its children wrote, and another error when the stream was cut or
// a newer Output has taken it over: ask again with Output.
func (s *OutputStream) Next() (int64, []byte, error) {
	data, err := ReadChunk(s.conn, s.buf)
	if err != nil {
		return s.offset, nil, err
	}
	at := s.offset
	s.offset += int64(len(data))
	return at, data, nil
}

// Offset is that of what Next returns next.
func (s *OutputStream) Offset() int64 { return s.offset }

// Ack tells the agent that the bytes before offset are safe: it forgets them.
// A process whose output is not acknowledged blocks in the end.
func (s *OutputStream) Ack(offset int64) error {
	s.ackMu.Lock()
	defer s.ackMu.Unlock()
	return WriteAck(s.conn, offset)
}

// Close ends the stream; what was not acknowledged stays with the agent.
func (s *OutputStream) Close() error {
	s.stop()
	return s.conn.Close()
}

// InputStream feeds a process's stdin. Write and CloseInput are for one
// goroutine; the others may be called from any.
type InputStream struct {
	conn  net.Conn
	stop  func() bool
	acked atomic.Int64
	moved chan struct{} // holds one
	done  chan struct{}
}

// Input opens a process's stdin. It fails with ErrInvalid when the process has
// none. A newer Input ends the older one. The context covers the stream's life.
func (c *Client) Input(ctx context.Context, r Input) (*InputStream, error) {
	var at Offset
	conn, stop, err := c.begin(ctx, OpInput, r, &at)
	if err != nil {
		return nil, err
	}
	s := &InputStream{conn: conn, stop: stop, moved: make(chan struct{}, 1), done: make(chan struct{})}
	s.acked.Store(at.Offset)
	go s.acks()
	return s, nil
}

func (s *InputStream) acks() {
	defer close(s.done)
	for {
		n, err := ReadAck(s.conn)
		if err != nil {
			return
		}
		if n > s.acked.Load() {
			s.acked.Store(n)
			select {
			case s.moved <- struct{}{}:
			default:
			}
		}
	}
}

// Offset is how many bytes the process's stdin has been given since its
// beginning, over all streams.
func (s *InputStream) Offset() int64 { return s.acked.Load() }

// Moved is sent on when Offset has grown, for one who waits for that.
func (s *InputStream) Moved() <-chan struct{} { return s.moved }

// Done is closed when the agent takes no more: the process has closed its
// stdin or ended, a newer Input took over, or the channel was cut.
func (s *InputStream) Done() <-chan struct{} { return s.done }

// Write sends data to the process. It blocks while the process does not read.
func (s *InputStream) Write(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	if err := WriteChunk(s.conn, data); err != nil {
		return 0, err
	}
	return len(data), nil
}

// CloseInput makes the process read end of file, after what was written.
func (s *InputStream) CloseInput() error { return WriteChunk(s.conn, nil) }

// Close lets go of the stream; the process's stdin stays open for another.
func (s *InputStream) Close() error {
	s.stop()
	err := s.conn.Close()
	<-s.done
	return err
}
