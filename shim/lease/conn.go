package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/progress"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
	"github.com/bulkhead-project/bulkhead/shim/hostio"
)

// handle serves one connection.
func (s *Server) handle(conn *net.UnixConn) {
	defer conn.Close()
	stop := context.AfterFunc(s.ctx, func() { conn.Close() })
	defer stop()
	_ = conn.SetReadDeadline(time.Now().Add(s.hello))
	hello, files, err := receive(conn)
	if err != nil {
		refuse(conn, hostio.ErrRefused, err.Error())
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	s.serve(conn, hello, files)
}

// receive reads the first message.
func receive(conn *net.UnixConn) (hello hostio.Hello, f sandbox.HostFiles, err error) {
	var buf [4 + hostio.MaxPayload]byte // one byte more than a frame may have
	n, files, err := fdpass.Receive(conn, buf[:])
	if err != nil {
		return hello, f, err
	}
	hello, err = parse(buf[:n], len(files))
	if err != nil {
		fdpass.CloseAll(files)
		return hello, f, err
	}
	for _, slot := range []struct {
		has bool
		to  **os.File
	}{{hello.Terminal, &f.Terminal}, {hello.Stdin, &f.Stdin}, {hello.Stdout, &f.Stdout}, {hello.Stderr, &f.Stderr}} {
		if slot.has {
			*slot.to, files = files[0], files[1:]
		}
	}
	f.Progress = (*progress.Set)(files)
	return hello, f, nil
}

func parse(message []byte, files int) (hostio.Hello, error) {
	kind, payload, err := hostio.ParseFrame(message)
	if err != nil {
		return hostio.Hello{}, err
	}
	if kind != hostio.KindHello {
		return hostio.Hello{}, fmt.Errorf("%w: the first one is of kind %d", hostio.ErrProtocol, kind)
	}
	hello, err := hostio.DecodeHello(payload)
	if err == nil && hello.Files() != files {
		err = fmt.Errorf("%w: %d files came, not %d", hostio.ErrProtocol, files, hello.Files())
	}
	return hello, err
}

// serve serves a surrogate until its process ends, it leaves, it dies or the shim ends.
func (s *Server) serve(conn *net.UnixConn, hello hostio.Hello, files sandbox.HostFiles) {
	p := sandbox.Process{Container: hello.Container, Exec: hello.Exec}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	accepted, left := false, false
	received := make(chan struct{})
	exit, err := s.o.Sandbox.AttachFiles(ctx, p, files, func() {
		accepted = true
		s.returned(p)
		if hello.Rows > 0 && hello.Columns > 0 {
			s.resize(ctx, p, hello.Rows, hello.Columns) // before the caller can start the process
		}
		send(conn, hostio.KindAccepted, nil) // if it fails, the surrogate is dead, which the next read notices
		go func() {
			defer close(received)
			defer cancel()
			left = s.receiveFrames(ctx, conn, p)
		}()
	})
	if !accepted {
		refuse(conn, classOf(err), err.Error())
		return
	}
	if err == nil {
		send(conn, hostio.KindExit, hostio.Exit{Code: exit.Code, Signal: exit.Signal, Reason: exit.Reason, Message: exit.Message}.Encode())
	}
	conn.Close()
	<-received
	switch {
	case err == nil:
		if p.Exec != "" {
			s.o.Discard(s.ctx, p)
		}
	case s.ctx.Err() != nil: // the lease goes on with the next shim
	case left:
		if err := s.o.Sandbox.EndLease(p); err != nil {
			s.o.Logger.Warn("end a lease", "container", p.Container, "exec", p.Exec, "error", err)
		}
	default:
		s.o.Logger.Info("a surrogate is dead; its process is killed", "container", p.Container, "exec", p.Exec, "error", err)
		s.kill(p)
	}
}

// receiveFrames obeys the surrogate's frames until its end, and reports whether it left on purpose. A malformed frame
// is an end.
func (s *Server) receiveFrames(ctx context.Context, conn *net.UnixConn, p sandbox.Process) (left bool) {
	for {
		kind, payload, err := hostio.ReadFrame(conn)
		switch {
		case err != nil:
			return false
		case kind == hostio.KindLeave && len(payload) == 0:
			return true
		case kind == hostio.KindResize:
			rows, columns, err := hostio.DecodeSize(payload)
			if err != nil {
				return false
			}
			s.resize(ctx, p, rows, columns)
		case kind == hostio.KindSignal && len(payload) == 1:
			s.debug(ctx, "pass on a signal", p, s.o.Sandbox.SignalProcess(ctx, p, unix.Signal(payload[0]), false))
		default:
			return false
		}
	}
}

func (s *Server) resize(ctx context.Context, p sandbox.Process, rows, columns uint16) {
	s.debug(ctx, "pass on a size", p, s.o.Sandbox.ResizeProcess(ctx, p, columns, rows))
}

// debug logs an error that a surrogate cannot do anything about.
func (s *Server) debug(ctx context.Context, what string, p sandbox.Process, err error) {
	if err != nil && ctx.Err() == nil {
		s.o.Logger.Debug(what, "container", p.Container, "exec", p.Exec, "error", err)
	}
}

// classOf returns the class of a refusal.
func classOf(err error) error {
	switch {
	case errors.Is(err, errdefs.ErrNotFound):
		return hostio.ErrNotFound
	case errors.Is(err, sandbox.ErrAttached):
		return hostio.ErrBusy
	}
	return hostio.ErrRefused
}

func refuse(conn *net.UnixConn, class error, text string) {
	send(conn, hostio.KindRefused, hostio.EncodeRefusal(class, text))
}

// send sends a frame. A surrogate that does not get it is dead.
func send(conn *net.UnixConn, kind hostio.Kind, payload []byte) {
	_ = conn.SetWriteDeadline(time.Now().Add(writeDeadline))
	_, _ = conn.Write(hostio.AppendFrame(nil, kind, payload))
}
