package adopt

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Connect redirects each packet that enters an interface to a tap, and vice versa. It works in the calling thread's
// namespace.
func Connect(eth netlink.Link, tapName string) error {
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
