package cni

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// join joins the plugins' interface in the namespace at path with the VM's tap. It returns the settings for the guest,
// so that it takes the place of that interface and of the further ones.
func join(path string) (guest *agentv1.Network, more []*agentv1.Network, err error) {
	err = inside(path, func() error {
		links, err := list(netlink.LinkList)
		if err != nil {
			return fmt.Errorf("list the interfaces: %w", err)
		}
		at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == ifName })
		if at < 0 {
			return fmt.Errorf("the plugins made no interface %s", ifName)
		}
		eth := links[at]
		if more, err = further(slices.Delete(links, at, at+1)); err != nil {
			return err
		}
		if len(more) > 0 {
			if err := checkRules(); err != nil {
				return err
			}
		}
		if guest, err = read(eth); err != nil {
			return fmt.Errorf("read interface %s: %w", ifName, err)
		}
		if len(guest.Addresses) == 0 {
			return fmt.Errorf("read interface %s: %w", ifName, errNoAddress)
		}
		return connect(eth, tapName)
	})
	return guest, more, err
}

// connect redirects each packet that enters an interface to a tap, and vice versa.
func connect(eth netlink.Link, tapName string) error {
	card, err := netlink.LinkByName(tapName)
	if err != nil {
		return fmt.Errorf("find the VM's tap: %w", err)
	}
	if err := netlink.LinkSetMTU(card, eth.Attrs().MTU); err != nil {
		return fmt.Errorf("set the MTU of the VM's tap: %w", err)
	}
	if err := netlink.LinkSetUp(card); err != nil {
		return fmt.Errorf("bring the VM's tap up: %w", err)
	}
	for from, to := range map[netlink.Link]netlink.Link{eth: card, card: eth} {
		if err := redirect(from.Attrs().Index, to.Attrs().Index); err != nil {
			return fmt.Errorf("redirect from %s to %s: %w", from.Attrs().Name, to.Attrs().Name, err)
		}
	}
	return nil
}

// redirect uses u32 and mirred: not every kernel has matchall.
func redirect(from, to int) error {
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: from, Parent: netlink.HANDLE_INGRESS, Handle: netlink.MakeHandle(0xffff, 0),
	}}
	if err := netlink.QdiscAdd(ingress); err != nil {
		return fmt.Errorf("add an ingress queue: %w", err)
	}
	// A filter without a key matches every packet.
	all := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: from, Parent: netlink.MakeHandle(0xffff, 0), Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Actions: []netlink.Action{netlink.NewMirredAction(to)},
	}
	if err := netlink.FilterAdd(all); err != nil {
		return fmt.Errorf("add a filter: %w", err)
	}
	return nil
}

// read reads an interface as the plugins have left it in the kernel: not all of them report all of it.
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
