package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/podlog"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/cli/tree"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// openCopy dials the stream of a copy. run carries it to its end.
func openCopy(ctx context.Context, a *app.App, pod string, req api.CopyRequest) (run func(stream.Stdio) error, err error) {
	var s api.Stream
	if err := a.Client.Call(ctx, "POST", a.PodPath(pod, "copy"), nil, req, &s); err != nil {
		return nil, err
	}
	conn, err := stream.Dial(ctx, s.Address, s.Token)
	if err != nil {
		return nil, refusal(err)
	}
	return func(std stream.Stdio) error {
		std.Stderr = &noteWriter{w: a.Err}
		_, err := std.Run(ctx, conn)
		return err
	}, nil
}

// copyOut copies a container's file or directory to target.
func copyOut(ctx context.Context, a *app.App, from place, target, container string) error {
	if target == standard && tty.IsTerminal(a.Out) {
		return errors.New("stdout is a terminal: redirect it for the tar stream of -")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run, err := openCopy(ctx, a, from.pod, api.CopyRequest{Container: container, Path: from.path})
	if err != nil {
		return err
	}
	if target == standard {
		return run(stream.Stdio{Stdout: a.Out})
	}
	in, out := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := tree.Unpack(in, target, agentv1.TreeBase(from.path), note(a))
		in.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		if err != nil {
			cancel() // the pod may never stop sending if its output is not read
		}
		unpacked <- err
	}()
	err = run(stream.Stdio{Stdout: out})
	// Only a stream that ended without an error is complete.
	out.CloseWithError(err)
	if failed := <-unpacked; failed != nil && !errors.Is(failed, err) {
		return failed
	}
	return err
}

// copyIn copies source to a container.
func copyIn(ctx context.Context, a *app.App, source string, to place, container string) error {
	req := api.CopyRequest{Container: container, Path: to.path, In: true, Into: source == standard}
	if source == standard && tty.IsTerminal(a.In) {
		return errors.New("stdin is a terminal: redirect it for the tar stream of -")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run, err := openCopy(ctx, a, to.pod, req)
	if err != nil {
		return err
	}
	named := func(err error) error {
		if err == nil || ctx.Err() != nil {
			return err
		}
		if why, found := strings.CutPrefix(err.Error(), "agent unpack: "); found {
			err = errors.New(why)
		}
		return fmt.Errorf("copy to %s:%s: %w", to.pod, to.path, err)
	}
	if source == standard {
		return named(run(stream.Stdio{Stdin: a.In}))
	}
	in, out := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := tree.Pack(out, source, note(a))
		if err != nil {
			cancel() // an incomplete stream must not look complete
		}
		out.CloseWithError(err)
		packed <- err
	}()
	err = named(run(stream.Stdio{Stdin: in}))
	in.CloseWithError(io.ErrClosedPipe)
	if failed := <-packed; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	return err
}

// note returns a function that prints which files a copy left out.
func note(a *app.App) func(string) {
	return func(line string) { fmt.Fprintln(a.Err, "bulkhead: "+text.Plain(line)) }
}

// noteWriter prints the lines that a pod's shim sends.
type noteWriter struct {
	w    io.Writer
	line []byte
}

func (n *noteWriter) Write(p []byte) (int, error) {
	n.line = append(n.line, p...)
	for {
		line, rest, whole := bytes.Cut(n.line, []byte{'\n'})
		if !whole {
			break
		}
		fmt.Fprintln(n.w, "bulkhead: "+text.Printable(string(line)))
		n.line = rest
	}
	if len(n.line) > podlog.MaxLine {
		n.line = nil
	}
	return len(p), nil
}
