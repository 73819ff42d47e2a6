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
	return guest, nil
}

// addressesOf returns an interface's addresses that others can reach, IPv4 first.
func addressesOf(l netlink.Link) (out []string, err error) {
	all, err := list(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", l.Attrs().Name, err)
	}
	slices.SortStableFunc(all, func(a, b netlink.Addr) int { return cmp.Compare(len(a.IP), len(b.IP)) })
	for _, a := range all {
		if !a.IP.IsLinkLocalUnicast() {
			out = append(out, a.IPNet.String())
		}
	}
	return out, nil
}
