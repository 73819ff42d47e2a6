package remote

import (
	"context"
	"math"
	"net"
	"net/netip"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/network"
)

// Bounds of an interface.
const (
	maxName      = 15 // bytes, the kernel's limit
	maxAddresses = 64
	maxRoutes    = 1024 // and static neighbours
)

// UpdateNetwork implements enginev1.EngineService.
func (s *Service) UpdateNetwork(ctx context.Context, r *enginev1.UpdateNetworkRequest) (*enginev1.UpdateNetworkResponse, error) {
	ctx, done := s.keepServing(ctx)
	defer done()
	p, err := s.findPod(r)
	if err != nil {
		return nil, failure.Wrap(err, "update the network")
	}
	update, err := networkUpdate(r)
	if err != nil {
		return nil, failure.Wrap(err, "update the network")
	}
	if err := s.engine.UpdateNetwork(ctx, p.ID, update); err != nil {
		return nil, err
	}
	return &enginev1.UpdateNetworkResponse{}, nil
}

// networkUpdate translates a request for the engine.
func networkUpdate(r *enginev1.UpdateNetworkRequest) (u engine.NetworkUpdate, err error) {
	if len(r.GetTapFds()) > card.Most {
		return u, failure.Invalid("%d taps, at most %d are allowed", len(r.GetTapFds()), card.Most)
	}
	for _, fd := range r.GetTapFds() {
		tap, err := heldOf(r.GetHolder(), fd)
		if err != nil {
			return u, err
		}
		u.Taps = append(u.Taps, tap)
	}
	if n := r.GetNamespace(); n != nil {
		held, err := heldOf(n.GetHolder(), n.GetFd())
		if err != nil {
			return u, err
		}
		u.Namespace = &store.Namespace{Held: held, Publish: n.GetPublish(), Resolver: n.GetResolver()}
	}
	u.Interfaces = make([]*agentv1.Network, card.Most+1)
	for _, i := range r.GetInterfaces() {
		if i.GetCard() > card.Most || u.Interfaces[i.GetCard()] != nil {
			return u, failure.Invalid("interface %.20q: card %d must be from 0 to %d, and have one interface", i.GetName(), i.GetCard(), card.Most)
		}
		if u.Interfaces[i.GetCard()], err = interfaceOf(i); err != nil {
			return u, failure.Wrap(err, "interface %.20q", i.GetName())
		}
	}
	return u, nil
}

// interfaceOf checks and translates an interface. The guest checks its name.
func interfaceOf(i *enginev1.Interface) (*agentv1.Network, error) {
	if i.GetName() == "" || len(i.GetName()) > maxName || i.GetMtu() > math.MaxUint16 || len(i.GetAddresses()) > maxAddresses ||
		len(i.GetRoutes()) > maxRoutes || len(i.GetNeighbours()) > maxRoutes {
		return nil, failure.Invalid("its name must have 1 to %d bytes, its MTU be below %d; at most %d addresses, %d routes and %d neighbours",
			maxName, math.MaxUint16+1, maxAddresses, maxRoutes, maxRoutes)
	}
	n := &agentv1.Network{Name: i.GetName(), MAC: i.GetMac(), MTU: int(i.GetMtu()), Addresses: i.GetAddresses()}
	if _, err := net.ParseMAC(i.GetMac()); err != nil {
		return nil, failure.Invalid("MAC %.40q: %v", i.GetMac(), err)
	}
	for _, a := range i.GetAddresses() {
		if _, err := netip.ParsePrefix(a); err != nil {
			return nil, failure.Invalid("address %.80q must have the length of its prefix: %v", a, err)
		}
	}
	for _, r := range i.GetRoutes() {
		_, err := netip.ParsePrefix(r.GetDestination())
		if err == nil && r.GetGateway() != "" {
			_, err = netip.ParseAddr(r.GetGateway())
		}
		if err != nil {
			return nil, failure.Invalid("route to %.80q: %v", r.GetDestination(), err)
		}
		n.Routes = append(n.Routes, agentv1.Route{Destination: r.GetDestination(), Gateway: r.GetGateway(), Metric: int(r.GetMetric())})
	}
	for _, b := range i.GetNeighbours() {
		_, err := netip.ParseAddr(b.GetAddress())
		if err == nil {
			_, err = net.ParseMAC(b.GetMac())
		}
		if err != nil {
			return nil, failure.Invalid("neighbour %.80q: %v", b.GetAddress(), err)
		}
		n.Neighbours = append(n.Neighbours, agentv1.Neighbour{Address: b.GetAddress(), MAC: b.GetMac()})
	}
	return n, nil
}

// heldOf returns a descriptor of a holder.
func heldOf(h *enginev1.Holder, fd int32) (network.Held, error) {
	if h.GetPid() <= 0 || fd < 0 {
		return network.Held{}, failure.Invalid("descriptor %d of process %d: both must be numbers of the host", fd, h.GetPid())
	}
	holder, err := holderOf(h)
	return network.Held{Holder: holder, FD: int(fd)}, err
}
