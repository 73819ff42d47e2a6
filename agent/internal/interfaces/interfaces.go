// Package interfaces configures the guest's network interfaces.
package interfaces

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/netlink"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Clear undoes Set.
func Clear(card *boot.Interface, n *agentv1.Network) error {
	c, err := netlink.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, s := range n.Gateways {
		if err := c.RemoveDefaultRoute(card.Index, netip.MustParseAddr(s)); err != nil {
			return err
		}
	}
	for _, s := range n.Addresses {
		if err := c.RemoveAddress(card.Index, netip.MustParsePrefix(s)); err != nil {
			return err
		}
	}
	return nil
}

// Set configures an interface for the pod, and brings it up.
func Set(card *boot.Interface, n *agentv1.Network) error {
	var mac net.HardwareAddr
	var err error
	if n.MAC != "" {
		if mac, err = net.ParseMAC(n.MAC); err != nil {
			return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
		}
	}
	if card.Index == 0 {
		return fmt.Errorf("the VM has no network device: %w", errdefs.ErrNotFound)
	}
	index := card.Index
	c, err := netlink.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	// A virtio device's address may change while it is up.
	if err := c.Link(index, mac, n.MTU, true); err != nil {
		return err
	}
	if slices.ContainsFunc(n.Addresses, func(s string) bool { return strings.Contains(s, ":") }) {
		if err := card.IPv6(true); err != nil {
			return err
		}
	}
	for _, s := range n.Addresses {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
		}
		if err := c.Address(index, p); err != nil {
			return err
		}
	}
	for _, s := range n.Gateways {
		gateway, err := netip.ParseAddr(s)
		if err != nil {
			return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
		}
		if err := c.DefaultRoute(index, gateway); err != nil {
			return err
		}
	}
	return setRoutes(c, index, n)
}

// setRoutes sets routes and static neighbours. Those that exist stay.
func setRoutes(c *netlink.Conn, index int, n *agentv1.Network) error {
	for _, r := range n.Routes {
		to, gateway, err := parseRoute(r)
		if err == nil {
			err = c.Route(index, to, gateway, r.Metric)
		}
		if err != nil {
			return err
		}
	}
	for _, n := range n.Neighbours {
		a, err := netip.ParseAddr(n.Address)
		if err != nil {
			return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
		}
		mac, err := net.ParseMAC(n.MAC)
		if err != nil {
			return fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
		}
		if err := c.Neighbour(index, a, mac); err != nil {
			return err
		}
	}
	return nil
}

func parseRoute(r agentv1.Route) (to netip.Prefix, gateway netip.Addr, err error) {
	to, err = netip.ParsePrefix(r.Destination)
	if err == nil && r.Gateway != "" {
		gateway, err = netip.ParseAddr(r.Gateway)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	}
	return to, gateway, err
}
