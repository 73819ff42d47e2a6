package engine

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"

	"google.golang.org/grpc/codes"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/hostports"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// hostPorts publishes the ports that a pod of the host's network listens on, until stop is called.
func (p *pod) hostPorts(ctx context.Context, c *link.Conn) (stop func()) {
	if !p.snapshot().HostPorts {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := hostports.Sync(ctx, portsPod{p, c}, p.pace, p.e.log.With("pod", p.id))
		p.mu.Lock()
		ending := p.ending
		p.mu.Unlock()
		if ctx.Err() == nil && !lost(err) && !ending {
			p.e.log.Warn("the ports of a pod are not updated any more", "pod", p.id, "error", err)
		}
	}()
	return func() { cancel(); <-done }
}

// portsPod is a pod and its current shim.
type portsPod struct {
	p *pod
	c *link.Conn
}

func (h portsPod) Listening(ctx context.Context, known []hostports.Port) (out []hostports.Port, err error) {
	var r shimv1.ListeningRequest
	for _, p := range known {
		r.Ports = append(r.Ports, &shimv1.ListeningPort{Port: uint32(p.Number), Loopback: p.Loopback, Datagrams: p.Datagrams})
	}
	res, err := h.c.Ext.Listening(ctx, &r)
	for _, p := range res.GetPorts() {
		out = append(out, hostports.Port{Number: int(p.GetPort()), Loopback: p.GetLoopback(), Datagrams: p.GetDatagrams()})
	}
	return out, err
}

func (h portsPod) Ports() []store.Port { return slices.Clone(h.p.snapshot().Ports) }

func (h portsPod) SetPorts(ports []store.Port) error {
	return h.p.update(func(r *store.Pod) { r.Ports = slices.Clone(ports) })
}

func (h portsPod) Publish(ctx context.Context, l network.Listener) error {
	if l.UDP != nil {
		h.p.publishDatagrams([]network.Listener{l})
		return nil
	}
	defer l.Close()
	return publishPort(ctx, h.c, l)
}

func (h portsPod) Unpublish(ctx context.Context, p store.Port) error {
	if p.Protocol == hostports.UDP {
		h.p.datagrams.Unpublish(p.HostPort)
		return nil
	}
	_, err := h.c.Ext.Unpublish(ctx, &shimv1.UnpublishRequest{File: portFile(p.HostPort)})
	return err
}

// republish opens the ports again that were closed with the old shim.
func (p *pod) republish(ctx context.Context, c *link.Conn) error {
	var errs []error
	for _, port := range p.snapshot().Ports {
		if port.Protocol == hostports.UDP {
			continue // the engine has their sockets
		}
		ls, err := network.Listen([]network.Port{network.Port(port)})
		for _, l := range ls {
			err = errors.Join(publishPort(ctx, c, l), l.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// openDatagrams opens the stream that carries datagrams of the pod's UDP ports.
func (p *pod) openDatagrams(ctx context.Context) (net.Conn, error) {
	c, err := p.shim()
	if err != nil {
		return nil, err
	}
	s, err := openStream(ctx, c, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_DATAGRAMS})
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
func (p *pod) resumeDatagrams() {
	for _, port := range p.snapshot().Ports {
		if port.Protocol != hostports.UDP {
			continue
		}
		listeners, err := network.Listen([]network.Port{network.Port(port)})
		if err != nil {
			p.e.log.Warn("publish a pod's port again", "pod", p.id, "error", err)
		}
		p.publishDatagrams(listeners)
	}
}

// NetworkUpdate are the interfaces of a pod in the network NetworkAdopted.
type NetworkUpdate struct {
	// Interfaces are by the numbers of the VM's cards; nil is a card without one.
	Interfaces []*agentv1.Network
	// Taps are for the VM's further cards, from number 1 on. A VM gets them once.
	Taps []network.Held
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
		return failure.New(codes.FailedPrecondition, "its network is not %s", network.KindAdopted)
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
	raw, err := json.Marshal(agentv1.SetNetwork{Interfaces: u.Interfaces})
	if err != nil {
		return err
	}
	if _, err := c.Ext.UpdateNetwork(ctx, &shimv1.UpdateNetworkRequest{Interfaces: raw, Taps: uint32(len(u.Taps))}); err != nil {
		return err
	}
	return p.update(func(r *store.Pod) {
		r.IPs, r.Cards = network.IPs(u.Interfaces...), nil
		for i, n := range u.Interfaces {
			if i > 0 && n != nil {
				r.Cards = append(r.Cards, n.Name)
			}
		}
	})
}
