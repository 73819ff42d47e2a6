// Package session has the commands that exchange bytes with a running pod: exec, attach, debug, console, cp and
// port-forward.
package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// Options control how this process's standard streams are joined to a process of a pod.
type Options struct {
	Stdin bool // pass stdin on
	TTY   bool // join this terminal to the process's terminal
	// Redraw makes the process draw its prompt again, which it may have drawn before the session.
	Redraw bool
	keys   []byte // keys that detach; the process keeps running
}

// Check returns an error if this process's streams do not fit the options.
func (o Options) Check() error {
	if o.TTY && !term.IsTerminal(int(os.Stdin.Fd())) {
		return errors.New("-t needs a terminal on stdin: omit -t, or run this in a terminal")
	}
	return nil
}

// Dial connects to the streams of a process.
func Dial(ctx context.Context, s api.Stream) (net.Conn, error) {
	conn, err := stream.Dial(ctx, s.Address, s.Token)
	return conn, refusal(err)
}

// join dials and carries a session.
func join(ctx context.Context, a *app.App, s api.Stream, o Options) error {
	conn, err := Dial(ctx, s)
	if err != nil {
		return err
	}
	return Run(ctx, a, conn, o)
}

// Run runs a session until its process ends or its user leaves. It returns the process's exit code as an
// ExitError, and closes conn.
func Run(ctx context.Context, a *app.App, conn net.Conn, o Options) error {
	std := stream.Stdio{Stdout: a.Out, Stderr: a.Err}
	if o.Stdin {
		if std.Stdin = a.In; o.TTY && len(o.keys) > 0 {
			std.Stdin = &escapeReader{r: a.In, keys: o.keys}
		}
	}
	if o.TTY {
		// A signal must not leave the terminal in raw mode.
		caught, stop := tty.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		defer stop()
		ctx = caught
		raw, err := tty.MakeRaw(os.Stdin, os.Stdin, "")
		if err != nil {
			conn.Close()
			return err
		}
		defer raw.Restore()
		sizes, stopSizes := tty.Sizes(raw.FD, o.Redraw)
		defer stopSizes()
		std.Resize = sizes
	}
	code, err := std.Run(ctx, conn)
	signalled := tty.SignalError{}
	switch {
	case errors.As(context.Cause(ctx), &signalled):
		return app.ExitError(128 + int(signalled.Signal))
	case errors.Is(err, stream.ErrLeft):
		fmt.Fprint(a.Err, "\r\nbulkhead: detached; the process keeps running\r\n")
		return nil
	case err != nil:
		return err
	case code != 0:
		return app.ExitError(code)
	}
	return nil
}
