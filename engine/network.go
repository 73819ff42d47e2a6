package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/hostports"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/resolver"
	"github.com/bulkhead-project/bulkhead/engine/sockets"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// followNetwork does the work of the engine for the pod's network, until stop is called.
func (p *pod) followNetwork(ctx context.Context, c *link.Conn) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { p.followPorts(ctx, c) })
	work.Go(func() { p.resolve(ctx, c) })
	return func() { cancel(); work.Wait() }
}

// resolve answers the pod's DNS queries with the name server of the client's namespace, if the client asks for it.
func (p *pod) resolve(ctx context.Context, c *link.Conn) {
	if p.snapshot().VM.Network != hypervisor.NetworkAdopted ||
		!p.awaitRecord(ctx, func(r *store.Pod) bool { return r.Namespace != nil && r.Namespace.Resolver }) {
		return
	}
	conn, err := dialDatagrams(ctx, c, agentv1.DNSPort)
	if err == nil {
		err = resolver.Serve(ctx, conn, p.inside().Dial)
	}
	p.report(ctx, "names of the client's network are not resolved any more", err)
}

// report logs the error of a task that ended before the pod and its shim.
func (p *pod) report(ctx context.Context, what string, err error) {
	p.mu.Lock()
	ending := p.ending
	p.mu.Unlock()
	if ctx.Err() == nil && !lost(err) && !ending {
		p.e.log.Warn(what, "pod", p.id, "error", err)
	}
}

// followPorts publishes the ports that the pod listens on. It publishes them on the host for a pod of the host's network,
// and in a client's namespace if the client asks for it.
func (p *pod) followPorts(ctx context.Context, c *link.Conn) {
	r := p.snapshot()
	if !r.HostPorts && (r.VM.Network != hypervisor.NetworkAdopted ||
		!p.awaitRecord(ctx, func(r *store.Pod) bool { return r.Namespace != nil && r.Namespace.Publish })) {
		return
	}
	err := hostports.Sync(ctx, portsPod{p, c, !r.HostPorts}, p.pace, p.e.log.With("pod", p.id))
	p.report(ctx, "the ports of a pod are not updated any more", err)
}

// portsPod is a pod and its current shim.
type portsPod struct {
	p *pod
	c *link.Conn
	// inside means that the ports are those of the client's namespace.
	inside bool
}

func (h portsPod) Listening(ctx context.Context, known agentv1.Listening) (now agentv1.Listening, err error) {
	raw, err := json.Marshal(known)
	if err != nil {
		return now, err
	}
	res, err := h.c.Ext.Listening(ctx, &shimv1.ListeningRequest{Known: raw})
	if err != nil {
		return now, err
	}
	if err := json.Unmarshal(res.GetNow(), &now); err != nil {
		return now, fmt.Errorf("read the listening ports: %w", err)
	}
	return now, nil
}

func (h portsPod) Ports() []store.Port {
	r := h.p.snapshot()
	if h.inside {
		return slices.Clone(r.Namespace.Ports)
	}
	return slices.Clone(r.Ports)
}

func (h portsPod) SetPorts(ports []store.Port) error {
	return h.p.update(func(r *store.Pod) {
		if !h.inside {
			r.Ports = slices.Clone(ports)
			return
		}
		n := *r.Namespace // snapshots share the old one
		n.Ports = slices.Clone(ports)
		r.Namespace = &n
	})
}

func (h portsPod) Listen(ctx context.Context, port network.Port) (l network.Listener, err error) {
	if !h.inside {
		all, err := network.Listen([]network.Port{port})
		if err == nil {
			l = all[0]
		}
		return l, err
	}
	return h.p.inside().Listen(ctx, port)
}

// inside returns the client's network namespace, which the record has.
func (p *pod) inside() sockets.Namespace { return sockets.Of(p.snapshot().Namespace.Held, &p.indoors) }

// file returns the name of a port's socket among the files for a shim.
func (h portsPod) file(port int) string {
	if h.inside {
		return "inside-" + portFile(port)
	}
	return portFile(port)
}

func (h portsPod) Publish(ctx context.Context, l network.Listener) error {
	if l.UDP != nil {
		h.p.publishDatagrams([]network.Listener{l})
		return nil
	}
	defer l.Close()
	return publishPort(ctx, h.c, h.file(l.HostPort), l)
}

func (h portsPod) Unpublish(ctx context.Context, p store.Port) error {
	if p.Protocol == hostports.UDP {
		h.p.datagrams.Unpublish(p.HostPort)
		return nil
	}
	_, err := h.c.Ext.Unpublish(ctx, &shimv1.UnpublishRequest{File: h.file(p.HostPort)})
	return err
}

// places returns the published ports of the host, and those of the client's namespace if there is one.
func (p *pod) places(c *link.Conn) []portsPod {
	all := []portsPod{{p, c, false}}
	if p.snapshot().Namespace != nil {
		all = append(all, portsPod{p, c, true})
	}
	return all
}

// republish opens the TCP ports again that were closed with the old shim.
func (p *pod) republish(ctx context.Context, c *link.Conn) error {
	var errs []error
	for _, at := range p.places(c) {
		for _, port := range at.Ports() {
			if port.Protocol == hostports.UDP {
				continue // the engine has their sockets
			}
			l, err := at.Listen(ctx, network.Port(port))
			if err == nil {
				err = at.Publish(ctx, l)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// openDatagrams opens the stream that carries datagrams of the pod's UDP ports.
func (p *pod) openDatagrams(ctx context.Context) (net.Conn, error) {
	c, err := p.shim()
	if err != nil {
		return nil, err
	}
	return dialDatagrams(ctx, c, 0)
}

// dialDatagrams opens a stream of datagrams: of the pod's UDP ports, or of its DNS queries with agentv1.DNSPort.
func dialDatagrams(ctx context.Context, c *link.Conn, port uint32) (net.Conn, error) {
	s, err := c.Open(ctx, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_DATAGRAMS, Port: port})
	if err != nil {
		return nil, err
	}
	return stream.Dial(ctx, s.Socket, s.Token)
}

// publishDatagrams takes over UDP sockets.
func (p *pod) publishDatagrams(listeners []network.Listener) {
	for _, l := range listeners {
		if l.UDP == nil {
			continue
		}
		if err := p.datagrams.Publish(l.UDP, uint16(l.PodPort)); err != nil {
			p.e.log.Warn("publish a pod's port", "pod", p.id, "port", l.HostPort, "error", err)
		}
	}
}

// resumeDatagrams opens the UDP ports again that were closed with an earlier engine.
func (p *pod) resumeDatagrams(ctx context.Context) {
	for _, at := range p.places(nil) {
		for _, port := range at.Ports() {
			if port.Protocol != hostports.UDP {
				continue
			}
			l, err := at.Listen(ctx, network.Port(port))
			if err != nil {
				p.e.log.Warn("publish a pod's port again", "pod", p.id, "error", err)
				continue
			}
			p.publishDatagrams([]network.Listener{l})
		}
	}
}

// NetworkUpdate are the interfaces of a pod in the network NetworkAdopted.
type NetworkUpdate struct {
	// Interfaces are by the numbers of the VM's cards; nil is a card without one.
	Interfaces []*agentv1.Network
	// Taps are for the VM's further cards, from number 1 on. A VM gets them once.
	Taps []network.Held
	// Namespace is the client's network namespace, if the engine has work there. It has no Ports. Its requests last for
	// the pod's life.
	Namespace *store.Namespace
}

// UpdateNetwork replaces the interfaces of a ready pod. It may be repeated.
func (e *Engine) UpdateNetwork(ctx context.Context, id string, u NetworkUpdate) error {
	p, err := e.find(id)
	if err != nil {
		return err
	}
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.done()
	return failure.Wrap(p.updateNetwork(ctx, u), "update the network of pod %s", shortid.Of(p.id))
}

func (p *pod) updateNetwork(ctx context.Context, u NetworkUpdate) error {
	if p.snapshot().VM.Network != hypervisor.NetworkAdopted {
		return failure.New(errdefs.ErrFailedPrecondition, "its network is not %s", network.KindAdopted)
	}
	c, err := p.live(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	for i, held := range u.Taps {
		tap, err := held.Take()
		if err == nil {
			err = errors.Join(c.SendFile(ctx, layout.Card(i), tap), tap.Close())
		}
		if err != nil {
			return failure.Wrap(err, "network card %d", i+1)
		}
	}
	raw, err := json.Marshal(agentv1.SetNetwork{Interfaces: u.Interfaces, Resolver: u.Namespace != nil && u.Namespace.Resolver})
	if err != nil {
		return err
	}
	if _, err := c.Ext.UpdateNetwork(ctx, &shimv1.UpdateNetworkRequest{Interfaces: raw, Taps: uint32(len(u.Taps))}); err != nil {
		return err
	}
	return p.update(func(r *store.Pod) {
		r.IPs, r.Cards = network.IPs(u.Interfaces...), nil
		if u.Namespace != nil {
			n := *u.Namespace
			if r.Namespace != nil {
				n.Ports = r.Namespace.Ports
			}
			r.Namespace = &n
		}
		for i, n := range u.Interfaces {
			if i > 0 && n != nil {
				r.Cards = append(r.Cards, n.Name)
			}
		}
	})
}
