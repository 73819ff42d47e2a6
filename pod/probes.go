package pod

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// probes are the health of a pod's containers as their probes have it. Only the
// goroutine of Run uses it; the probers run beside.
type probes struct {
	r       *run
	watched map[*container]*watched
}

// watched is the prober of one run of a container.
type watched struct {
	*probe.Prober
	id     string
	cancel context.CancelFunc
}

func newProbes(r *run) *probes { return &probes{r: r, watched: make(map[*container]*watched)} }

// of is the prober of c's newest instance, nil for one that has none (yet).
func (p *probes) of(c *container) *watched {
	if w := p.watched[c]; w != nil && w.id == c.newest.id() {
		return w
	}
	return nil
}

func (p *probes) started(c *container) bool {
	if c.spec.StartupProbe == nil {
		return true
	}
	w := p.of(c)
	return w != nil && w.Verdict().Started
}

func (p *probes) ready(c *container) bool {
	if c.spec.ReadinessProbe == nil {
		return true
	}
	w := p.of(c)
	return w != nil && w.Verdict().Ready
}

func (p *probes) sick(c *container) (why string, grace time.Duration, yes bool) {
	w := p.of(c)
	if w == nil {
		return "", 0, false
	}
	failed := w.Verdict().Failed
	if failed == "" {
		return "", 0, false
	}
	c.failing = w.id
	why = fmt.Sprintf("Container %s failed %s probe", c.spec.Name, strings.ToLower(string(failed)))
	if restarts(p.r.pod, c.kind, c.spec, codeLost) {
		why += ", will be restarted"
	}
	spec, grace := c.spec.LivenessProbe, p.r.p.grace()
	if failed == probe.Startup {
		spec = c.spec.StartupProbe
	}
	if own := spec.TerminationGracePeriodSeconds; own != nil {
		grace = time.Duration(*own) * time.Second
	}
	return why, grace, true
}

// follow has every container probed that runs and has probes, and ends the
// probers of those that do not run any more. A pod that is being stopped is not
// asked whether it lives.
func (p *probes) follow(ctx context.Context) {
	for _, c := range p.r.containers {
		running := p.r.running(c)
		if w := p.watched[c]; w != nil && (!running || w.id != c.newest.id()) {
			w.cancel()
			delete(p.watched, c)
		}
		if probed(c.spec) && running && c.hook == nil && p.watched[c] == nil {
			p.watched[c] = p.watch(ctx, c)
		}
		if w := p.watched[c]; w != nil && (p.r.stopping != nil || c.killing == w.id) {
			w.Quiesce()
		}
	}
}

// watch begins to probe c's newest instance.
func (p *probes) watch(runCtx context.Context, c *container) *watched {
	ctx, cancel := context.WithCancel(runCtx)
	id := c.newest.id()
	began := nano(c.newest.status.GetStartedAt())
	if now := time.Now(); began.IsZero() || began.After(now) {
		began = now // the machine's clock is not this one
	}
	sandbox, host := c.newest.sandbox, ""
	if ips := p.r.ips(); len(ips) > 0 {
		host = ips[0]
	}
	target := &probe.Target{
		Container: c.spec, ID: id, Command: func(command []string) []string { return staticCommand(c.spec, command) },
		Runtime: p.r.o.Runtime, Dial: dialer(p.r.o, sandbox, host), Host: host,
	}
	options := probe.Options{
		Container: c.spec, Ask: target.Ask, Began: began, Resumed: c.ours != id,
		Changed: func() { p.r.tell(ctx, func() {}) },
		Event:   func(reason, message string) { p.r.tell(ctx, func() { p.r.event(c, true, reason, message) }) },
	}
	if last, known := p.r.o.Last[id]; known {
		options.Last = &last
	}
	if p.r.o.Pauses != nil {
		options.Stalls = func() (uint64, bool) { return p.r.o.Pauses(sandbox) }
	}
	w := &watched{Prober: probe.New(options), id: id, cancel: cancel}
	p.r.work.Go(func() { w.Run(ctx) })
	return w
}

// staticCommand is a probe's command with the references to those variables of
// the container expanded that have their values in the pod itself.
func staticCommand(c *corev1.Container, command []string) []string {
	values := make(map[string]string, len(c.Env))
	for _, env := range c.Env {
		values[env.Name] = env.Value
	}
	out := make([]string, len(command))
	for i, word := range command {
		out[i] = expand(word, func(name string) (string, bool) { value, known := values[name]; return value, known })
	}
	return out
}

// dialer connects to the ports of the pod that has this sandbox and address, the
// latter empty for none.
func dialer(o *Options, sandbox, ip string) probe.Dialer {
	if o.Dial == nil {
		return probe.To(ip)
	}
	return func(ctx context.Context, port int) (net.Conn, error) {
		conn, err := o.Dial(ctx, sandbox, port)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			// As it would be told if the pod's address were the host's to reach.
			return nil, &net.OpError{
				Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: port},
				Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
			}
		}
		switch status.Code(err) {
		case codes.Unavailable, codes.FailedPrecondition, codes.NotFound:
			return nil, fmt.Errorf("%w: %w", probe.ErrNotAsked, err)
		}
		return nil, err
	}
}
