package pod

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// SetNetwork replaces the pod's interfaces while it runs.
func (p *Pod) SetNetwork(_ context.Context, r agentv1.SetNetwork) error {
	p.configuring.Lock()
	defer p.configuring.Unlock()
	p.mu.Lock()
	ready := p.configured != nil && !p.request.Rehearsal
	p.mu.Unlock()
	if !ready {
		return fmt.Errorf("the VM has no pod yet: %w", errdefs.ErrInvalidArgument)
	}
	if err := p.cards.Update(r.Interfaces); err != nil {
		return fmt.Errorf("set up the network: %w", err)
	}
	if r.Resolver {
		if err := p.resolver.Listen(); err != nil {
			return fmt.Errorf("take DNS queries: %w", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.request.Cards = p.cards.Further()
	return nil
}

// Resolve sends DNS queries of the pod to the host, and its answers to the pod, until the stream ends.
func (p *Pod) Resolve(_ context.Context, s *agentv1.Stream) error {
	if err := s.Reply(nil); err != nil {
		return err
	}
	conn := agentv1.NewChunkConn(s.Conn)
	defer conn.Close()
	p.resolver.Serve(conn)
	return nil
}

// Hosts returns the addresses of the pod's listeners: the loopback addresses first, then the pod's own.
func (p *Pod) Hosts() []netip.Addr {
	hosts := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	p.mu.Lock()
	if p.request.Network != nil {
		for _, s := range p.request.Network.Addresses {
			if prefix, err := netip.ParsePrefix(s); err == nil {
				hosts = append(hosts, prefix.Addr())
			}
		}
	}
	p.mu.Unlock()
	return hosts
}

// Cards returns the pod's further interfaces.
func (p *Pod) Cards() []agentv1.Network {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.request.Cards
}
