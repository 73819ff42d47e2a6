package adopt

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// read reads an interface as it is in the kernel: not every network plugin reports all of it.
func read(eth netlink.Link) (*agentv1.Network, error) {
	a := eth.Attrs()
	guest := &agentv1.Network{MAC: a.HardwareAddr.String(), MTU: a.MTU}
	var err error
	if guest.Addresses, err = addressesOf(eth); err != nil {
		return nil, err
	}
	routes, err := list(func() ([]netlink.Route, error) { return netlink.RouteList(eth, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the routes: %w", err)
	}
	direct := 0
	for _, r := range routes {
		if r.Protocol == unix.RTPROT_KERNEL || r.Type != unix.RTN_UNICAST {
			continue // the guest's kernel adds its own
		}
		route := agentv1.Route{Metric: r.Priority}
		if r.Dst != nil {
			route.Destination = r.Dst.String()
		}
		if r.Gw != nil {
			route.Gateway = r.Gw.String()
		}
		if route.Gateway == "" { // gateways may need it, so it comes before their routes
			guest.Routes = slices.Insert(guest.Routes, direct, route)
			direct++
			continue
		}
		guest.Routes = append(guest.Routes, route)
	}
	guest.Neighbours, err = neighboursOf(eth)
	return guest, err
}

// mostNeighbours bounds the static neighbours of an interface.
const mostNeighbours = 256

// neighboursOf returns the hardware addresses that are configured for an interface. Some networks have a gateway that
// does not answer requests for its own.
func neighboursOf(l netlink.Link) (out []agentv1.Neighbour, err error) {
	all, err := list(func() ([]netlink.Neigh, error) { return netlink.NeighList(l.Attrs().Index, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the neighbours: %w", err)
	}
	for _, n := range all {
		if n.State&netlink.NUD_PERMANENT == 0 || n.Flags&netlink.NTF_PROXY != 0 || len(n.HardwareAddr) == 0 || n.IP.IsMulticast() {
			continue
		}
		if len(out) == mostNeighbours {
			return nil, fmt.Errorf("%w: it has more than %d static neighbours", errInterface, mostNeighbours)
		}
		out = append(out, agentv1.Neighbour{Address: n.IP.String(), MAC: n.HardwareAddr.String()})
	}
	return out, nil
}

// addressesOf returns an interface's addresses that others can reach, IPv4 first. The guest makes IPv6 addresses of the
// link by itself. An IPv4 address of the link counts if there is no other: networks without an uplink have such ones.
func addressesOf(l netlink.Link) (out []string, err error) {
	all, err := list(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", l.Attrs().Name, err)
	}
	slices.SortStableFunc(all, func(a, b netlink.Addr) int { return cmp.Compare(len(a.IP), len(b.IP)) })
	var ofLink []string
	for _, a := range all {
		switch {
		case !a.IP.IsLinkLocalUnicast():
			out = append(out, a.IPNet.String())
		case a.IP.To4() != nil:
			ofLink = append(ofLink, a.IPNet.String())
		}
	}
	if !slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.IP.To4() != nil && !a.IP.IsLinkLocalUnicast() }) {
		out = append(ofLink, out...)
	}
	return out, nil
}
