package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/shim/stream"
	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

func (a *app) execCmd() *cobra.Command {
	var req api.ExecRequest
	cmd := &cobra.Command{
		Use:   "exec POD [--] COMMAND [ARG…]",
		Short: "Run a command in a container of a running pod",
		Example: `  bulkhead exec web -- nginx -t
  bulkhead exec -it -c app web -- sh`,
		Args: atLeast("POD", "COMMAND"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Command = args[1:]; req.Command[0] == "--" {
				req.Command = req.Command[1:]
			}
			if len(req.Command) == 0 {
				return fmt.Errorf("name the command to run in pod %s", args[0])
			}
			if req.TTY && !term.IsTerminal(int(os.Stdin.Fd())) {
				return fmt.Errorf("-t needs a terminal on stdin")
			}
			var s api.Stream
			if err := a.client.Call(cmd.Context(), "POST", podPath(args[0], "exec"), nil, req, &s); err != nil {
				return err
			}
			return a.attach(cmd.Context(), s, req)
		},
	}
	cmd.Flags().StringVarP(&req.Container, "container", "c", "", "container (default: the pod's first)")
	cmd.Flags().BoolVarP(&req.Stdin, "stdin", "i", false, "pass stdin on")
	cmd.Flags().BoolVarP(&req.TTY, "tty", "t", false, "give the command a terminal")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// attach joins this process's standard streams to a stream of the pod's shim.
func (a *app) attach(ctx context.Context, s api.Stream, req api.ExecRequest) error {
	conn, err := stream.Dial(ctx, s.Address, s.Token)
	if err != nil {
		return err
	}
	std := stream.Stdio{Stdout: a.out, Stderr: a.err}
	if req.Stdin {
		std.Stdin = a.in
	}
	if req.TTY {
		// An end from outside must leave the terminal as it was.
		caught, stop := catch(ctx, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		defer stop()
		ctx = caught
		fd := int(os.Stdin.Fd())
		old, err := term.MakeRaw(fd)
		if err != nil {
			conn.Close()
			return fmt.Errorf("set the terminal: %w", err)
		}
		defer func() { _ = term.Restore(fd, old) }() // nothing is left to do about a failure
		sizes, stopSizes := terminalSizes(fd)
		defer stopSizes()
		std.Resize = sizes
	}
	code, err := std.Run(ctx, conn)
	if signalled := (signalError{}); errors.As(context.Cause(ctx), &signalled) {
		return ExitError(128 + int(signalled.Signal))
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return ExitError(code)
	}
	return nil
}

// signalError is why a context ended that catch has made.
type signalError struct{ syscall.Signal }

func (e signalError) Error() string { return e.String() }

// catch returns a context that ends with the first of the signals, with a
// signalError for its cause. stop gives the signals back.
func catch(ctx context.Context, signals ...os.Signal) (caught context.Context, stop func()) {
	caught, cancel := context.WithCancelCause(ctx)
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, signals...)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case s := <-arrived:
			if number, ok := s.(syscall.Signal); ok {
				cancel(signalError{number})
			}
		case <-caught.Done():
		}
	}()
	return caught, func() {
		signal.Stop(arrived)
		cancel(nil)
		<-ended
	}
}

// terminalSizes sends the terminal's size now and at every change of it.
func terminalSizes(fd int) (<-chan stream.Size, func()) {
	changes := make(chan os.Signal, 1)
	sizes := make(chan stream.Size, 1)
	done := make(chan struct{})
	signal.Notify(changes, syscall.SIGWINCH)
	changes <- syscall.SIGWINCH
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-changes:
			}
			w, h, err := term.GetSize(fd)
			if err != nil {
				continue // the terminal went away; the stream's end tells
			}
			select {
			case sizes <- stream.Size{Width: uint16(w), Height: uint16(h)}:
			case <-done:
				return
			}
		}
	}()
	return sizes, func() {
		signal.Stop(changes)
		close(done)
		<-ended
	}
}

func (a *app) consoleCmd() *cobra.Command {
	return &cobra.Command{
		Use: "console POD", Short: "Print the guest's console, and go on until the machine ends", Args: exactly("POD"),
		Example: "  bulkhead console web",
		RunE: func(cmd *cobra.Command, args []string) error {
			var s api.Stream
			if err := a.client.Call(cmd.Context(), "GET", podPath(args[0], "console"), nil, nil, &s); err != nil {
				return err
			}
			conn, err := stream.Dial(cmd.Context(), s.Address, s.Token)
			if err != nil {
				return err
			}
			defer conn.Close()
			stop := context.AfterFunc(cmd.Context(), func() { conn.Close() })
			defer stop()
			_, err = io.Copy(a.out, conn)
			return err
		},
	}
}
