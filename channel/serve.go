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

// Serve is the guest's side: it answers hellos on the port, and calls handler in a new goroutine for each stream that
// the host opens. handler closes the stream. The streams of a session end when the next session starts. Serve returns
// when the port fails, or is closed after ctx ends, and all handlers have returned. If the port is a blocking file,
// Serve stays in its read until the host sends data.
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
	s.endSession()
	s.group.wait()
	s.out.close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("channel: %w", err)
}

type server struct {
	port    io.ReadWriteCloser
	out     *outbox // writes to the port
	own     []byte
	handler func(net.Conn)
	group   group

	mu    sync.Mutex // keeps the order of writes; guards epoch
	epoch uint64     // current session; 0 for none

	current *guestConn // used by the reading goroutine only
}

func (s *server) serve() error {
	d := frame.NewDecoder(s.port, true)
	// Without a host, a read returns at once and this write blocks.
	if err := s.write(frame.Ready, 0); err != nil {
		return err
	}
	for {
		f, err := d.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrNoProgress) {
			d.Reset()
			s.endSession()
			err = s.write(frame.Ready, 0)
		}
		if err != nil {
			return err
		}
		switch {
		case f.Kind == frame.Hello:
			err = s.hello(f)
		case f.Kind == frame.Data && s.current != nil && f.Epoch == s.current.epoch:
			// This fails only if the session has ended by itself.
			_, _ = s.current.in.Write(f.Payload)
		case f.Kind == frame.End && s.current != nil && f.Epoch == s.current.epoch:
			s.endSession()
		}
		if err != nil {
			return err
		}
	}
}

// hello starts the session of a new epoch. A repeated hello is only answered again.
func (s *server) hello(f frame.Frame) error {
	if _, err := decodeHello(f.Payload); err != nil || f.Epoch == 0 {
		return nil //nolint:nilerr // garbage gets no answer
	}
	if s.current == nil || s.current.epoch != f.Epoch {
		s.endSession()
		s.startSession(f.Epoch)
	}
	return s.write(frame.Answer, f.Epoch, s.own)
}

func (s *server) startSession(epoch uint64) {
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

// endSession ends the current session without waiting: its last frame may be stuck in the port until the host reads.
func (s *server) endSession() {
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

// over notifies the host that the guest has ended a session.
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

// writeFrame queues a data frame of the current epoch.
func (s *server) writeFrame(epoch uint64, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch {
		return errors.New("the session is over")
	}
	return s.out.add(b)
}

// write writes a frame, and blocks without a host.
func (s *server) write(k frame.Kind, epoch uint64, payload ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.add(frame.Append(nil, k, epoch, payload...)); err != nil {
		return err
	}
	return s.out.flush()
}

// guestConn is the connection that yamux uses.
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
