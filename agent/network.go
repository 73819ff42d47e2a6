package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/netlink"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// setNetwork gives the machine's only interface the pod's identity. A machine keeps its
// network for life, but for that of a rehearsal.
func (a *Agent) setNetwork(n *agentv1.Network) error {
	if n == nil || reflect.DeepEqual(n, a.network) {
		return nil
	}
	set := n
	if a.network != nil {
		if !a.pod.Rehearsal {
			return fmt.Errorf("the interface is set up already, and differently: %w", agentv1.ErrExists)
		}
		same := *a.network
		if same.MAC = n.MAC; reflect.DeepEqual(&same, n) {
			set = &agentv1.Network{MAC: n.MAC} // all else stands
		} else if err := clearInterface(&a.card, a.network); err != nil {
			return err
		}
	}
	if err := setInterface(&a.card, set); err != nil {
		return err
	}
	a.network = n
	return nil
}

// listening tells of the ports that processes listen on when they are others than known.
func (a *Agent) listening(ctx context.Context, known agentv1.Listening) (agentv1.Listening, error) {
	ports, err := a.ports.Wait(ctx, known.Ports)
	return agentv1.Listening{Ports: ports}, err
}

// clearInterface takes away what setInterface has given.
func clearInterface(card *boot.Interface, n *agentv1.Network) error {
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

func setInterface(card *boot.Interface, n *agentv1.Network) error {
	var mac net.HardwareAddr
	var err error
	if n.MAC != "" {
		if mac, err = net.ParseMAC(n.MAC); err != nil {
			return fmt.Errorf("%w: %w", agentv1.ErrInvalid, err)
		}
	}
	if card.Index == 0 {
		return fmt.Errorf("the machine has no network device: %w", agentv1.ErrNotFound)
	}
	index := card.Index
	c, err := netlink.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	// It is up, which the address of a virtio device may change in.
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
			return fmt.Errorf("%w: %w", agentv1.ErrInvalid, err)
		}
		if err := c.Address(index, p); err != nil {
			return err
		}
	}
	for _, s := range n.Gateways {
		gateway, err := netip.ParseAddr(s)
		if err != nil {
			return fmt.Errorf("%w: %w", agentv1.ErrInvalid, err)
		}
		if err := c.DefaultRoute(index, gateway); err != nil {
			return err
		}
	}
	return setRoutes(c, index, n.Routes)
}

func setRoutes(c *netlink.Conn, index int, routes []agentv1.Route) error {
	for _, r := range routes {
		to, err := netip.ParsePrefix(r.Destination)
		var gateway netip.Addr
		if err == nil && r.Gateway != "" {
			gateway, err = netip.ParseAddr(r.Gateway)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", agentv1.ErrInvalid, err)
		}
		if err := c.Route(index, to, gateway, r.Metric); err != nil {
			return err
		}
	}
	return nil
}
