package agentv1

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// OutputStream carries a process's output. Only one goroutine may call Next; Ack and Close are safe for concurrent
// use.
type OutputStream struct {
	conn   net.Conn
	stop   func() bool
	offset int64
	buf    []byte
	ackMu  sync.Mutex
}

// Output opens an output stream of a process. The context covers the whole life of the stream: Next fails when it
// ends.
func (c *Client) Output(ctx context.Context, r Output) (*OutputStream, error) {
	var at Offset
	conn, stop, err := c.startCall(ctx, OpOutput, r, &at)
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

// Next returns the next bytes and the offset of the first one. The data is valid until the next call. It returns
// io.EOF after all output of the process and its children. Any other error means that the stream was cut or taken
// over by a newer Output; the caller can ask again with Output.
func (s *OutputStream) Next() (int64, []byte, error) {
	data, err := ReadChunk(s.conn, s.buf)
	if err != nil {
		return s.offset, nil, err
	}
	at := s.offset
	s.offset += int64(len(data))
	return at, data, nil
}

// Offset is the offset of the next data from Next.
func (s *OutputStream) Offset() int64 { return s.offset }

// Ack tells the agent to discard the bytes before offset. A process without acknowledgements eventually blocks.
func (s *OutputStream) Ack(offset int64) error {
	s.ackMu.Lock()
	defer s.ackMu.Unlock()
	return WriteAck(s.conn, offset)
}

// Close ends the stream. The agent keeps unacknowledged data.
func (s *OutputStream) Close() error {
	s.stop()
	return s.conn.Close()
}

// InputStream feeds a process's stdin. Only one goroutine may call Write and CloseInput; the other methods are safe
// for concurrent use.
type InputStream struct {
	conn  net.Conn
	stop  func() bool
	acked atomic.Int64
	moved chan struct{} // capacity 1
	done  chan struct{}
}

// Input opens a process's stdin. It fails with errdefs.ErrInvalidArgument if the process has none. A newer Input ends the older
// one. The context covers the stream's life.
func (c *Client) Input(ctx context.Context, r Input) (*InputStream, error) {
	var at Offset
	conn, stop, err := c.startCall(ctx, OpInput, r, &at)
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

// Offset returns the number of bytes that the process's stdin has received, over all streams.
func (s *InputStream) Offset() int64 { return s.acked.Load() }

// Moved returns a channel that receives a value when Offset has grown. It serves one receiver.
func (s *InputStream) Moved() <-chan struct{} { return s.moved }

// Done returns a channel that is closed when the agent accepts no more data: the process has closed its stdin or
// ended, a newer Input took over, or the channel was cut.
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

// CloseInput makes the process read end of file after the written data.
func (s *InputStream) CloseInput() error { return WriteChunk(s.conn, nil) }

// Close closes the stream. The process's stdin stays open for another one.
func (s *InputStream) Close() error {
	s.stop()
	err := s.conn.Close()
	<-s.done
	return err
}
