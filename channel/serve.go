package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/hashicorp/yamux"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// Serve is the guest's side: it answers hellos that come over the port, and
// calls handler in a goroutine of its own for each stream that the host opens;
// handler closes the stream. A session's streams end when the next session
// begins. Serve returns when the port fails, or is closed after the context's
// end, and all handlers have returned. A port that was opened as a blocking
// file keeps Serve in its read until the host sends something.
func Serve(ctx context.Context, port io.ReadWriteCloser, own Hello, handler func(net.Conn)) error {
	body, err := own.encode()
	if err != nil {
		return fmt.Errorf("channel: %w", err)
	}
	s := &server{port: port, out: newOutbox(port), own: body, handler: handler}
	stop := context.AfterFunc(ctx, func() { port.Close() })
	defer stop()
	err = s.serve()
	port.Close()
	s.end()
	s.group.wait()
	s.out.close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("channel: %w", err)
}

type server struct {
	port    io.ReadWriteCloser
	out     *outbox // to the port
	own     []byte
	handler func(net.Conn)
	group   group

	mu    sync.Mutex // of the order of what is written, and of epoch
	epoch uint64     // of the session whose frames may be written; 0 for none

	current *guestConn // of the reading goroutine
}

func (s *server) serve() error {
	d := frame.NewDecoder(s.port, true)
	// While no host is there a read returns at once, and this write waits.
	if err := s.write(frame.Ready, 0); err != nil {
		return err
	}
	for {
		f, err := d.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrNoProgress) {
			d.Reset()
			s.end()
			err = s.write(frame.Ready, 0)
		}
		if err != nil {
			return err
		}
		switch {
		case f.Kind == frame.Hello:
			err = s.hello(f)
		case f.Kind == frame.Data && s.current != nil && f.Epoch == s.current.epoch:
			// Fails only when the session has ended by itself.
			_, _ = s.current.in.Write(f.Payload)
		case f.Kind == frame.End && s.current != nil && f.Epoch == s.current.epoch:
			s.end()
		}
		if err != nil {
			return err
		}
	}
}

// hello begins the session of a new epoch; one that is repeated is only
// answered again.
func (s *server) hello(f frame.Frame) error {
	if _, err := decodeHello(f.Payload); err != nil || f.Epoch == 0 {
		return nil //nolint:nilerr // garbage is no hello, and gets no answer
	}
	if s.current == nil || s.current.epoch != f.Epoch {
		s.end()
		s.begin(f.Epoch)
	}
	return s.write(frame.Answer, f.Epoch, s.own)
}

func (s *server) begin(epoch uint64) {
	r, w := io.Pipe()
	c := &guestConn{PipeReader: r, in: w, epoch: epoch}
	c.Writer = &framer{epoch: epoch, write: func(b []byte) error { return s.writeFrame(epoch, b) }}
	mux, err := yamux.Server(c, muxConfig())
	if err != nil {
		return // the configuration is fixed and valid
	}
	c.mux = mux
	s.current = c
	s.mu.Lock()
	s.epoch = epoch
	s.mu.Unlock()
	s.group.run(func() {
		for {
			stream, err := mux.AcceptStream()
			if err != nil {
				break
			}
			s.group.run(func() { s.handler(newStream(stream, &s.group, false)) })
		}
		mux.Close()
		s.over(epoch)
	})
}

// end drops the current session without waiting for it: its last frame may be
// stuck in the port until the host reads.
func (s *server) end() {
	c := s.current
	if c == nil {
		return
	}
	s.current = nil
	s.mu.Lock()
	s.epoch = 0
	s.mu.Unlock()
	c.Close()
	s.group.run(func() { c.mux.Close() })
}

// over tells the host that a session ended by the guest's doing.
func (s *server) over(epoch uint64) {
	s.mu.Lock()
	mine := s.epoch == epoch
	if mine {
		s.epoch = 0
	}
	s.mu.Unlock()
	if mine {
		_ = s.write(frame.End, epoch)
	}
}

var errStale = errors.New("the session is over")

// writeFrame writes a data frame of the current epoch, some time soon.
func (s *server) writeFrame(epoch uint64, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch {
		return errStale
	}
	return s.out.add(b)
}

// write returns when the frame is written, and waits while no host is there.
func (s *server) write(k frame.Kind, epoch uint64, payload ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.add(frame.Append(nil, k, epoch, payload...)); err != nil {
		return err
	}
	return s.out.flush()
}

// guestConn is a session's connection as yamux sees it.
type guestConn struct {
	*io.PipeReader
	io.Writer
	in    *io.PipeWriter
	epoch uint64
	mux   *yamux.Session
}

func (c *guestConn) Close() error {
	c.in.Close()
	return c.PipeReader.Close()
}
