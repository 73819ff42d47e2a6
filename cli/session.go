package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// session is how this process's standard streams are joined to a process of a
// pod.
type session struct {
	stdin bool
	tty   bool   // this side's terminal is the process's
	keys  []byte // that end the session; the process lives on
}

// check says early what a session cannot have.
func (o session) check() error {
	if o.tty && !term.IsTerminal(int(os.Stdin.Fd())) {
		return errors.New("-t needs a terminal on stdin: leave it out, or call this from one")
	}
	return nil
}

// join carries a session until its process or its user ends it, and returns the
// process's exit code as an ExitError.
func (a *app) join(ctx context.Context, s api.Stream, o session) error {
	conn, err := stream.Dial(ctx, s.Address, s.Token)
	if err != nil {
		return refusal(err)
	}
	std := stream.Stdio{Stdout: a.out, Stderr: a.err}
	if o.stdin {
		if std.Stdin = a.in; o.tty && len(o.keys) > 0 {
			std.Stdin = &escapeReader{r: a.in, keys: o.keys}
		}
	}
	if o.tty {
		// An end from outside must leave the terminal as it was.
		caught, stop := catch(ctx, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		defer stop()
		ctx = caught
		raw, err := makeRaw(os.Stdin, os.Stdin, "")
		if err != nil {
			conn.Close()
			return err
		}
		defer raw.restore()
		sizes, stopSizes := terminalSizes(raw.fd)
		defer stopSizes()
		std.Resize = sizes
	}
	code, err := std.Run(ctx, conn)
	signalled := signalError{}
	switch {
	case errors.As(context.Cause(ctx), &signalled):
		return ExitError(128 + int(signalled.Signal))
	case errors.Is(err, stream.ErrLeft):
		fmt.Fprint(a.err, "\r\nbulkhead: detached; the process runs on\r\n")
		return nil
	case err != nil:
		return err
	case code != 0:
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
