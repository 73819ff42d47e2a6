// Package streams connects the kubelet's streaming library with the streams of an engine. Doors use it to serve exec,
// attach and port-forward.
package streams

import (
	"context"
	"io"
	"net"
	"time"

	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/process"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// Runtime implements streaming.Runtime with an engine's streams. The library calls it when a client has connected.
type Runtime struct{ Engine *engine.Engine }

var _ streaming.Runtime = Runtime{}

// Exec runs a command in a container.
func (o Runtime) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	var size stream.Size
	if tty {
		size = firstSize(ctx, resize)
	}
	c, err := o.Engine.Running(id)
	if err != nil {
		return err
	}
	to, err := c.Exec(ctx, process.Request{
		Command: cmd, TTY: tty, Streams: process.Streams{Stdin: in != nil, Stdout: out != nil, Stderr: errs != nil}, Size: size,
	})
	return copyStreams(ctx, to, err, in, out, errs, resize)
}

// sizeWait is how long a command waits for the size of its terminal. Clients that know the size send it at once.
const sizeWait = 300 * time.Millisecond

// firstSize returns the first size that the client sends, or zero if none comes in time.
func firstSize(ctx context.Context, resize <-chan remotecommand.TerminalSize) stream.Size {
	ctx, cancel := context.WithTimeout(ctx, sizeWait)
	defer cancel()
	select {
	case size := <-resize: // zero if the channel is closed
		return stream.Size{Width: size.Width, Height: size.Height}
	case <-ctx.Done():
		return stream.Size{}
	}
}

// Attach attaches to a container.
func (o Runtime) Attach(ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	c, err := o.Engine.Running(id)
	if err != nil {
		return err
	}
	to, err := c.Attach(ctx, process.Streams{Stdin: in != nil, Stdout: out != nil, Stderr: errs != nil && !tty})
	return copyStreams(ctx, to, err, in, out, errs, resize)
}

// copyStreams connects a client with a process until the process ends.
func copyStreams(
	ctx context.Context, to engine.Stream, err error, in io.Reader, out, errs io.Writer, resize <-chan remotecommand.TerminalSize,
) error {
	if err != nil {
		return err
	}
	conn, err := stream.Dial(ctx, to.Socket, to.Token)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sizes := make(chan stream.Size)
	go func() {
		for {
			select {
			case size, ok := <-resize:
				if !ok {
					return
				}
				select {
				case sizes <- stream.Size{Width: size.Width, Height: size.Height}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	code, err := stream.Stdio{Stdin: in, Stdout: out, Stderr: errs, Resize: sizes}.Run(ctx, conn)
	if err == nil && code != 0 {
		err = &process.ExitError{Code: code}
	}
	return err
}

// PortForward connects a client with a port of a pod.
func (o Runtime) PortForward(ctx context.Context, pod string, port int32, client io.ReadWriteCloser) error {
	to, err := o.Engine.PortForward(ctx, pod, int(port))
	if err != nil {
		return err
	}
	conn, err := stream.Dial(ctx, to.Socket, to.Token)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, client)
		_ = conn.(*net.UnixConn).CloseWrite()
	}()
	_, err = io.Copy(client, conn)
	return err
}
