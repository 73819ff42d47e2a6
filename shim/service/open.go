package service

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// Open returns a token for a byte stream.
func (e extension) Open(_ context.Context, r *shimv1.OpenRequest) (*shimv1.OpenResponse, error) {
	var token string
	var err error
	if r.Start {
		token, err = e.prepare(r)
	} else {
		var handler stream.Handler
		if handler, err = e.handler(r); err == nil {
			token, err = e.o.Streams.Issue(handler)
		}
	}
	if err != nil {
		return nil, toStatus(err)
	}
	return &shimv1.OpenResponse{Address: e.o.StreamAddress, Token: token}, nil
}

func (e extension) handler(r *shimv1.OpenRequest) (stream.Handler, error) {
	switch r.Kind {
	case shimv1.OpenRequest_ATTACH:
		p := sandbox.Process{Container: r.ContainerId, Exec: r.ExecId}
		if _, err := e.o.Sandbox.ProcessStatus(p); err != nil {
			return nil, err
		}
		return e.attach(p, r), nil
	case shimv1.OpenRequest_PORT_FORWARD:
		if r.Port == 0 || r.Port > 0xffff {
			return nil, invalid("forward to port %d: must be 1 to 65535", r.Port)
		}
		return e.forward(uint16(r.Port)), nil
	case shimv1.OpenRequest_DATAGRAMS:
		if r.Port == agentv1.DNSPort {
			return splice(e.o.Sandbox.Resolver), nil
		}
		return splice(e.o.Sandbox.Datagrams), nil
	case shimv1.OpenRequest_CONSOLE:
		return e.console, nil
	case shimv1.OpenRequest_COPY_OUT:
		return e.copyOut(r.ContainerId, r.Path), nil
	case shimv1.OpenRequest_COPY_IN:
		return e.copyIn(r.ContainerId, r.Path, r.Into), nil
	}
	return nil, invalid("open a stream: unknown kind %d", r.Kind)
}

func (e extension) forward(port uint16) stream.Handler {
	return splice(func(ctx context.Context) (net.Conn, error) { return e.o.Sandbox.Forward(ctx, port) })
}

// splice connects a client to the connection that open returns.
func splice(open func(context.Context) (net.Conn, error)) stream.Handler {
	return func(ctx context.Context) (func(context.Context, *net.UnixConn), error) {
		guest, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, conn *net.UnixConn) { stream.Splice(ctx, conn, guest) }, nil
	}
}

func (e extension) attach(p sandbox.Process, r *shimv1.OpenRequest) stream.Handler {
	return func(context.Context) (func(context.Context, *net.UnixConn), error) {
		return func(ctx context.Context, conn *net.UnixConn) { e.serveClient(ctx, conn, p, r) }, nil
	}
}

// serveClient serves one attached client until the process ends or the client disconnects. If the client disconnects
// without Leave, an exec'd process gets SIGHUP, as from a closed terminal.
func (e extension) serveClient(ctx context.Context, conn *net.UnixConn, p sandbox.Process, r *shimv1.OpenRequest) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := stream.NewWriter(conn)
	var c sandbox.Streams
	if r.Stdout {
		c.Stdout = w.Channel(stream.Stdout)
	}
	if r.Stderr {
		c.Stderr = w.Channel(stream.Stderr)
	}
	in, feed := io.Pipe()
	if r.Stdin {
		c.Stdin = in
	}
	// receive does not notice the client's end while the process does not read its stdin.
	unwatch, err := stream.OnHangup(conn, cancel)
	if err != nil {
		finish(w, sandbox.Exit{}, err)
		return
	}
	received, left := make(chan struct{}), false
	go func() {
		defer close(received)
		defer cancel() // the client is gone and reads no more
		left = e.receive(ctx, stream.NewReader(conn), feed, p)
	}()
	exit, err := e.o.Sandbox.Attach(ctx, p, c)
	in.CloseWithError(io.ErrClosedPipe)
	finish(w, exit, err)
	conn.Close()
	unwatch()
	<-received
	switch {
	case p.Exec == "":
	case err == nil && exit.Reason != sandbox.ReasonCannotRun: // its starter deletes it
		e.Discard(ctx, p) // its client has its exit code
	case err != nil && !left:
		e.hangUp(ctx, p)
	}
}

// Discard deletes an exec'd process that no client needs any more. It ignores the end of ctx.
func (s *Services) Discard(ctx context.Context, p sandbox.Process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangUpTimeout)
	defer cancel()
	_, err := s.o.Sandbox.DeleteProcess(ctx, p)
	if err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		s.o.Logger.Debug("delete a process", "container", p.Container, "exec", p.Exec, "error", err)
		return
	}
	s.forget(p)
}

// hangUpTimeout bounds the guest's handling of a signal or a deletion.
const hangUpTimeout = 10 * time.Second

// hangUp sends SIGHUP to a process that has lost its client. It ignores the end of ctx.
func (e extension) hangUp(ctx context.Context, p sandbox.Process) {
	if st, err := e.o.Sandbox.ProcessStatus(p); err != nil || st.State != sandbox.Running {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangUpTimeout)
	defer cancel()
	if err := e.o.Sandbox.SignalProcess(ctx, p, unix.SIGHUP, false); err != nil {
		e.o.Logger.Debug("hang up", "container", p.Container, "exec", p.Exec, "error", err)
	}
}

// receive reads the client's frames until its end, and reports whether it left on purpose.
func (e extension) receive(ctx context.Context, r *stream.Reader, stdin *io.PipeWriter, p sandbox.Process) (left bool) {
	ended := false
	for {
		ch, payload, err := r.Next()
		if err != nil || ch == stream.Leave {
			// Not io.EOF: the process's stdin outlives a lost client.
			stdin.CloseWithError(stream.ErrDetached)
			return err == nil
		}
		switch {
		case ch == stream.Stdin && len(payload) == 0:
			ended = true
			stdin.Close()
		case ch == stream.Stdin && !ended:
			_, _ = stdin.Write(payload) // fails if the process reads no more, which is no error
		case ch == stream.Resize:
			if size, err := stream.DecodeSize(payload); err == nil {
				_ = e.o.Sandbox.ResizeProcess(ctx, p, size.Width, size.Height)
			}
		}
	}
}

// finish sends the client the process's exit code or the stream's error.
func finish(w *stream.Writer, exit sandbox.Exit, err error) {
	switch {
	case err == nil:
		_ = w.Frame(stream.Exited, stream.EncodeExit(exit.Code))
	case !errors.Is(err, context.Canceled): // the client is gone
		_ = w.Frame(stream.Failed, []byte(bounded(err)))
	}
}

// bounded returns the first part of an error's text, for the client.
func bounded(err error) string {
	text := err.Error()
	return text[:min(len(text), 1024)]
}
