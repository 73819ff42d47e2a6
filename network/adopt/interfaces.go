package adopt

import (
	"cmp"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
)

// found is an interface that a VM can take the place of.
type found struct {
	link  netlink.Link
	guest *agentv1.Network // with the interface's name
}

// find reads the interfaces that are in use, in the order of their creation, except for the VM's taps. first is the
// name of its first tap. It returns an error if there are more than most.
func find(links []netlink.Link, first string, most int) (all []found, err error) {
	slices.SortFunc(links, func(a, b netlink.Link) int { return cmp.Compare(a.Attrs().Index, b.Attrs().Index) })
	for _, l := range links {
		a := l.Attrs()
		// A bond or bridge stands for its members.
		if a.Flags&net.FlagLoopback != 0 || a.MasterIndex != 0 || isTap(l, first) {
			continue
		}
		guest, err := read(l)
		if err != nil {
			return nil, fmt.Errorf("read interface %s: %w", a.Name, err)
		}
		// Kernels have tunnel interfaces of their own in every namespace.
		if len(guest.Addresses) == 0 && (a.EncapType != ethernet || a.Flags&net.FlagUp == 0) {
			continue
		}
		switch {
		case a.EncapType != ethernet:
			return nil, fmt.Errorf("%w: %s is of type %s", errInterface, a.Name, l.Type())
		case stacked(l):
			return nil, fmt.Errorf("%w: %s is stacked on another interface of the pod", errInterface, a.Name)
		case len(all) == most:
			return nil, fmt.Errorf("%w: %s is one too many: a pod has at most %d", errInterface, a.Name, card.Most+1)
		}
		guest.Name = a.Name
		all = append(all, found{l, guest})
	}
	return all, nil
}

// ethernet is the encapsulation of interfaces that a VM can have.
const ethernet = "ether"

// stacked reports whether an interface gets its packets from another one in the same namespace. That one's packets are
// redirected before it sees them.
func stacked(l netlink.Link) bool {
	a := l.Attrs()
	return l.Type() != "veth" && a.NetNsID < 0 && a.ParentIndex != 0 && a.ParentIndex != a.Index
}

// checkRules returns an error if routing rules use other tables than the main one: the guest does not get such rules.
func checkRules() error {
	rules, err := list(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list the routing rules: %w", err)
	}
	for _, r := range rules {
		if r.Table != unix.RT_TABLE_LOCAL && r.Table != unix.RT_TABLE_MAIN && r.Table != unix.RT_TABLE_DEFAULT {
			return fmt.Errorf("%w: routing rule %s", errInterface, r)
		}
	}
	return nil
}
