package service

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// Open hands out a token for a byte stream.
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

// splice joins a client to what open has opened.
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
		return func(ctx context.Context, conn *net.UnixConn) { e.carry(ctx, conn, p, r) }, nil
	}
}

// carry runs one attached client until the process ends or the client goes
// away. A command that somebody runs in a container is hung up on when who looks
// at it is gone without leaving it: as by a terminal that is closed.
func (e extension) carry(ctx context.Context, conn *net.UnixConn, p sandbox.Process, r *shimv1.OpenRequest) {
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
	// A process that does not read its stdin keeps receive from hearing of it.
	unwatch, err := stream.OnHangup(conn, cancel)
	if err != nil {
		finish(w, sandbox.Exit{}, err)
		return
	}
	received, left := make(chan struct{}), false
	go func() {
		defer close(received)
		defer cancel() // the client is gone, and nobody reads what would follow
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
	case err == nil && exit.Reason != sandbox.ReasonCannotRun: // which is left to who started it
		e.discard(ctx, p) // its client has been told
	case err != nil && !left:
		e.hangUp(ctx, p)
	}
}

// discard deletes an exec'd process that nobody asks for any more. It works when ctx has
// ended.
func (e extension) discard(ctx context.Context, p sandbox.Process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangUpTimeout)
	defer cancel()
	_, err := e.o.Sandbox.DeleteProcess(ctx, p)
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		e.o.Logger.Debug("delete a process", "container", p.Container, "exec", p.Exec, "error", err)
		return
	}
	e.forget(p)
}

// hangUpTimeout bounds the wait for the guest to take a signal, or to forget a
// process.
const hangUpTimeout = 10 * time.Second

// hangUp tells a process that nobody looks at it any more. It works when ctx has
// ended.
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

// receive takes the client's frames until it goes away, and says whether it left
// on purpose.
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
			_, _ = stdin.Write(payload) // fails when nobody wants it, which is no error
		case ch == stream.Resize:
			if size, err := stream.DecodeSize(payload); err == nil {
				_ = e.o.Sandbox.ResizeProcess(ctx, p, size.Width, size.Height)
			}
		}
	}
}

// finish tells the client how the process ended, or why its stream did.
func finish(w *stream.Writer, exit sandbox.Exit, err error) {
	switch {
	case err == nil:
		_ = w.Frame(stream.Exited, stream.EncodeExit(exit.Code))
	case !errors.Is(err, context.Canceled): // by the client's going
		_ = w.Frame(stream.Failed, []byte(bounded(err)))
	}
}

// bounded is what a client is told of an error.
func bounded(err error) string {
	text := err.Error()
	return text[:min(len(text), 1024)]
}
