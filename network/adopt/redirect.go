package adopt

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Connect redirects each packet that enters an interface to a tap, and vice versa. A tap that is connected already
// stays so. Connect works in the calling thread's namespace.
func Connect(eth netlink.Link, tapName string) error {
	card, err := netlink.LinkByName(tapName)
	if err != nil {
		return fmt.Errorf("find the VM's tap: %w", err)
	}
	// The kernel notifies of each change, so a connected tap must see none (Watch).
	if a := card.Attrs(); a.MTU != eth.Attrs().MTU {
		if err := netlink.LinkSetMTU(card, eth.Attrs().MTU); err != nil {
			return fmt.Errorf("set the MTU of the VM's tap: %w", err)
		}
	}
	if card.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(card); err != nil {
			return fmt.Errorf("bring the VM's tap up: %w", err)
		}
	}
	for from, to := range map[netlink.Link]netlink.Link{eth: card, card: eth} {
		if err := redirect(from, to); err != nil {
			return fmt.Errorf("redirect from %s to %s: %w", from.Attrs().Name, to.Attrs().Name, err)
		}
	}
	return nil
}

// priority is the priority of the filters that redirect packets. Only the exemptions come before them.
const priority = 3

// redirect uses u32 and mirred: not every kernel has matchall.
func redirect(from, to netlink.Link) error {
	there, err := targets(from)
	if err != nil {
		return err
	}
	if len(there) == 1 && there[0].to == to.Attrs().Index {
		return nil
	}
	if err := release(from, there); err != nil {
		return err
	}
	// Another program may have added a queue for its own filters.
	if err := netlink.QdiscAdd(ingress(from)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add an ingress queue: %w", err)
	}
	// A filter without a key matches every packet.
	all := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: from.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: priority, Protocol: unix.ETH_P_ALL,
		},
		Actions: []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
	}
	if err := netlink.FilterAdd(all); err != nil {
		return fmt.Errorf("add a filter: %w", err)
	}
	return nil
}

// ingress returns the queue of packets that enter an interface.
func ingress(l netlink.Link) netlink.Qdisc {
	return &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_INGRESS, Handle: netlink.MakeHandle(0xffff, 0),
	}}
}

// target is a filter that redirects every packet that enters an interface.
type target struct {
	filter *netlink.U32
	to     int // the index of an interface; 0 if that is gone
}

// targets returns the redirections of an interface to a tap, or from a tap, or to an interface that is gone.
func targets(l netlink.Link) (all []target, err error) {
	filters, err := filters(l)
	if err != nil {
		return nil, err
	}
	for _, f := range filters {
		f, ok := f.(*netlink.U32)
		if !ok || f.Priority != priority || len(f.Actions) != 1 {
			continue
		}
		to, ok := f.Actions[0].(*netlink.MirredAction)
		if !ok || to.MirredAction != netlink.TCA_EGRESS_REDIR {
			continue
		}
		if to.Ifindex != 0 && l.Type() != tuntap {
			end, err := netlink.LinkByIndex(to.Ifindex)
			if err != nil && !gone(err) {
				return nil, fmt.Errorf("find the target of a filter of %s: %w", l.Attrs().Name, err)
			}
			if err == nil && end.Type() != tuntap {
				continue // another program's
			}
		}
		all = append(all, target{f, to.Ifindex})
	}
	return all, nil
}

// filters returns the filters for packets that enter an interface.
func filters(l netlink.Link) ([]netlink.Filter, error) {
	all, err := list(func() ([]netlink.Filter, error) { return netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS) })
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("list the filters of %s: %w", l.Attrs().Name, err)
	}
	return all, nil
}

// release removes redirections from an interface. If no filter is left, it removes the ingress queue. It succeeds if
// the interface is gone.
func release(l netlink.Link, there []target) error {
	if len(there) == 0 {
		return nil
	}
	for _, t := range there {
		if err := netlink.FilterDel(t.filter); err != nil && !gone(err) {
			return fmt.Errorf("remove a filter of %s: %w", l.Attrs().Name, err)
		}
	}
	left, err := filters(l)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(left, func(f netlink.Filter) bool { return f.Attrs().Priority == priority }) {
		// The kernel keeps the filters' empty table. A filter without a handle means the table.
		table := &netlink.U32{FilterAttrs: there[0].filter.FilterAttrs}
		table.Handle = 0
		if err := netlink.FilterDel(table); err != nil && !gone(err) {
			return fmt.Errorf("remove the filters of %s: %w", l.Attrs().Name, err)
		}
	}
	if len(left) > 0 {
		return nil
	}
	// A queue of another kind (clsact) is another program's. The kernel refuses the request then.
	if err := netlink.QdiscDel(ingress(l)); err != nil && !gone(err) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("remove the ingress queue of %s: %w", l.Attrs().Name, err)
	}
	return nil
}

// gone reports whether a request failed because its interface, filter or queue does not exist any more.
func gone(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.As(err, &missing)
}
