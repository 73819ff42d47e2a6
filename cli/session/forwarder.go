package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// forwarder runs one port-forward.
type forwarder struct {
	app   *app.App
	ref   string
	ports []forwardedPort
	hosts []host

	mu sync.Mutex // guards the output
}

func (f *forwarder) run(ctx context.Context) error {
	var req api.ForwardRequest
	for _, p := range f.ports {
		req.Ports = append(req.Ports, p.remote)
	}
	var meant api.Forward
	if err := f.app.Client.Call(ctx, "POST", f.app.PodPath(f.ref, "forward"), nil, req, &meant); err != nil {
		return err
	}
	if len(meant.Ports) != len(f.ports) {
		return errors.New("the running engine has another version: end it, and the next command starts the installed one")
	}
	f.ref = meant.UID // later requests must not reach another pod of this name
	ctx, stop := tty.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil) // before the wait, at every return
	for i := range f.ports {
		f.ports[i].number = meant.Ports[i]
		if err := f.listen(ctx, &wg, f.ports[i]); err != nil {
			return err
		}
	}
	wg.Go(func() { cancel(f.awaitEnd(ctx)) })
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.As(cause, &tty.SignalError{}) {
		return cause
	}
	return nil
}

// awaitEnd waits for the pod to end and returns an error that says so.
func (f *forwarder) awaitEnd(ctx context.Context) error {
	var end api.Result
	if err := f.app.Client.Call(ctx, "POST", f.app.PodPath(f.ref, "wait"), nil, nil, &end); err != nil {
		return err
	}
	return fmt.Errorf("pod %s has ended: its ports are no longer forwarded", end.Pod)
}

// listen serves a port on all addresses.
func (f *forwarder) listen(ctx context.Context, wg *sync.WaitGroup, p forwardedPort) error {
	local := p.local
	if local < 0 {
		local = p.number
	}
	for _, h := range f.hosts {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(h.ip, strconv.Itoa(local)))
		if err != nil && h.optional {
			continue
		}
		if err != nil {
			return fmt.Errorf("forward %s: %w: choose another local port, or :%s for any", p.remote, err, p.remote)
		}
		if addr, ok := l.Addr().(*net.TCPAddr); ok {
			local = addr.Port // the next address gets the same port
		}
		f.printf("Forwarding from %s -> %d", l.Addr(), p.number)
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { l.Close() })
			defer stop()
			f.serve(ctx, wg, l, p)
		})
	}
	return nil
}

func (f *forwarder) serve(ctx context.Context, wg *sync.WaitGroup, l net.Listener, p forwardedPort) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				f.printError(l, p, err)
			}
			return
		}
		wg.Go(func() {
			if err := f.connect(ctx, conn, p); err != nil && ctx.Err() == nil {
				f.printError(l, p, err)
			}
		})
	}
}

// connect forwards one connection to its end.
func (f *forwarder) connect(ctx context.Context, conn net.Conn, p forwardedPort) error {
	var s api.Stream
	err := f.app.Client.Call(ctx, "POST", f.app.PodPath(f.ref, "connect"), nil, api.ConnectRequest{Port: p.number}, &s)
	if err != nil {
		conn.Close()
		return err
	}
	guest, err := stream.Dial(ctx, s.Address, s.Token)
	if err != nil {
		conn.Close()
		return refusal(err)
	}
	stream.Splice(ctx, conn, guest)
	return nil
}

func (f *forwarder) printf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(f.app.Out, format+"\n", args...)
}

func (f *forwarder) printError(l net.Listener, p forwardedPort, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(f.app.Err, "bulkhead: %s -> %d: %s\n", l.Addr(), p.number, text.Plain(err.Error()))
}
