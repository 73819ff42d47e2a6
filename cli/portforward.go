package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

func (a *app) portForwardCmd() *cobra.Command {
	var addresses []string
	cmd := &cobra.Command{
		Use:   "port-forward POD [LOCAL:]REMOTE…",
		Short: "Forward local ports to ports of a pod until Ctrl-C or the pod's end",
		Long: `Forward local ports to ports of a pod, TCP, until Ctrl-C or the pod's end. REMOTE is
a number or the name of a container's port; without LOCAL the local port has the same
number, and with an empty one (:80) any that is free. What listens in the pod may
listen on its loopback alone.`,
		Example: `  bulkhead port-forward web 8080:80
  bulkhead port-forward web :http
  bulkhead port-forward --address 0.0.0.0 web 8080:80 5432`,
		Args: atLeast("POD", "[LOCAL:]REMOTE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ports, err := parseForwards(args[1:])
			if err != nil {
				return err
			}
			hosts, err := parseAddresses(addresses)
			if err != nil {
				return err
			}
			return (&forwarder{app: a, ref: args[0], ports: ports, hosts: hosts}).run(cmd.Context())
		},
	}
	cmd.Flags().StringSliceVar(&addresses, "address", []string{"localhost"}, "addresses to listen on: localhost or IP addresses")
	return cmd
}

// forwardedPort is one argument of port-forward.
type forwardedPort struct {
	local  int    // 0 is any; -1 is the number of remote
	remote string // number or name
	number int    // of remote, as the engine knows it
}

func parseForwards(args []string) ([]forwardedPort, error) {
	var ports []forwardedPort
	for _, arg := range args {
		p := forwardedPort{local: -1, remote: arg}
		if local, remote, both := strings.Cut(arg, ":"); both {
			p.local, p.remote = 0, remote
			if local != "" {
				n, err := strconv.ParseUint(local, 10, 16)
				if err != nil {
					return nil, fmt.Errorf("%q: local port %q: give a number up to 65535, or none for any", arg, local)
				}
				p.local = int(n)
			}
		}
		if p.remote == "" || strings.Contains(p.remote, ":") {
			return nil, fmt.Errorf("%q is not [LOCAL:]REMOTE, as 8080:80", arg)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// host is an address to listen on.
type host struct {
	ip       string
	optional bool // localhost's second address
}

func parseAddresses(list []string) ([]host, error) {
	var hosts []host
	for _, text := range list {
		switch {
		case text == "localhost":
			hosts = append(hosts, host{ip: "127.0.0.1"}, host{"::1", true})
		case net.ParseIP(text) != nil:
			hosts = append(hosts, host{ip: text})
		default:
			return nil, fmt.Errorf("--address %q: give localhost or an IP address", text)
		}
	}
	return hosts, nil
}

// forwarder is one port-forward.
type forwarder struct {
	app   *app
	ref   string
	ports []forwardedPort
	hosts []host

	mu sync.Mutex // of what is printed
}

func (f *forwarder) run(ctx context.Context) error {
	var req api.ForwardRequest
	for _, p := range f.ports {
		req.Ports = append(req.Ports, p.remote)
	}
	var meant api.Forward
	if err := f.app.client.Call(ctx, "POST", podPath(f.ref, "forward"), nil, req, &meant); err != nil {
		return err
	}
	if len(meant.Ports) != len(f.ports) {
		return errors.New("the engine is of another version: end it (its next start is the installed one)")
	}
	f.ref = meant.UID // a pod of the same name may come after it
	ctx, stop := catch(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil) // before the wait, whatever the return
	for i := range f.ports {
		f.ports[i].number = meant.Ports[i]
		if err := f.listen(ctx, &wg, f.ports[i]); err != nil {
			return err
		}
	}
	wg.Go(func() { cancel(f.awaitEnd(ctx)) })
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.As(cause, &signalError{}) {
		return cause
	}
	return nil
}

// awaitEnd returns when the pod has ended.
func (f *forwarder) awaitEnd(ctx context.Context) error {
	var end api.Result
	if err := f.app.client.Call(ctx, "POST", podPath(f.ref, "wait"), nil, nil, &end); err != nil {
		return err
	}
	return fmt.Errorf("pod %s has ended: nothing is forwarded any more", end.Pod)
}

// listen serves a port on every address.
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
			return fmt.Errorf("forward %s: %w: choose another local port, as :%s for any", p.remote, err, p.remote)
		}
		if addr, ok := l.Addr().(*net.TCPAddr); ok {
			local = addr.Port // the same on the next address
		}
		f.say("Forwarding from %s -> %d", l.Addr(), p.number)
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
				f.complain(l, p, err)
			}
			return
		}
		wg.Go(func() {
			if err := f.connect(ctx, conn, p); err != nil && ctx.Err() == nil {
				f.complain(l, p, err)
			}
		})
	}
}

// connect carries one connection to its end.
func (f *forwarder) connect(ctx context.Context, conn net.Conn, p forwardedPort) error {
	var s api.Stream
	err := f.app.client.Call(ctx, "POST", podPath(f.ref, "connect"), nil, api.ConnectRequest{Port: p.number}, &s)
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

func (f *forwarder) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(f.app.out, format+"\n", args...)
}

func (f *forwarder) complain(l net.Listener, p forwardedPort, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(f.app.err, "bulkhead: %s -> %d: %s\n", l.Addr(), p.number, plain(err.Error()))
}
