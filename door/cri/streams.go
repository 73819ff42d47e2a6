package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"

	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// streams is the server of streams. Each of its URLs has a token that nobody can guess,
// is good for one client and for a minute.
type streams struct {
	streaming.Server
	*web
}

func newStreams(ctx context.Context, e *engine.Engine) (*streams, error) {
	w, err := listenWeb(ctx, "streams", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: w.listener.Addr().String()}
	server, err := streaming.NewServer(config, prepared{e})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve streams: %w", err), w.close())
	}
	w.server.Handler = server
	return &streams{server, w}, nil
}

// prepared connects the library's clients with the engine's streams. The library calls it
// when a client has come.
type prepared struct{ e *engine.Engine }

func (p prepared) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	to, err := p.e.Exec(ctx, engine.ExecRequest{
		Container: id, Command: cmd, TTY: tty, Stdin: in != nil, Stdout: out != nil, Stderr: errs != nil,
	})
	return carry(ctx, to, err, in, out, errs, resize)
}

func (p prepared) Attach(ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	to, err := p.e.Attach(ctx, engine.AttachRequest{
		Container: id, Stdin: in != nil, Stdout: out != nil, Stderr: errs != nil && !tty,
	})
	return carry(ctx, to, err, in, out, errs, resize)
}

// carry connects a client with a process, until that ends.
func carry(
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
		err = &engine.ExitError{Code: code}
	}
	return err
}

func (p prepared) PortForward(ctx context.Context, pod string, port int32, client io.ReadWriteCloser) error {
	to, err := p.e.PortForward(ctx, pod, int(port))
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
