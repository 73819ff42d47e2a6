package adopt

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
)

// Result is the network that a VM takes over.
type Result struct {
	// Interfaces are the settings for the guest, with the interfaces' names, by the numbers of the VM's cards. A card
	// without an interface is nil. There are at most card.Most+1.
	Interfaces []*agentv1.Network
	// Taps are new taps for the VM's further cards, from number 1 on. There are none, or card.Most. Join makes all at
	// once, because a running VM accepts further cards only once. The caller closes them.
	Taps []*os.File
	// Resolver means that docker's name server is at 127.0.0.11 of the namespace.
	Resolver bool
}

// Close closes the taps.
func (r *Result) Close() error {
	var errs []error
	for _, f := range r.Taps {
		errs = append(errs, f.Close())
	}
	r.Taps = nil
	return errors.Join(errs...)
}

// Join redirects the interfaces of a network namespace to the VM's taps, and reads them. ns is nil for the calling
// thread's namespace. The first tap must exist (TapName(0)), if there is an interface. A namespace with only a loopback
// gives no interfaces.
//
// Join may be called again at any time. An interface keeps its card. A new one gets the first free card. A card that
// has lost its interface is silent. The error matches errInterface if a VM cannot have an interface.
func Join(ns *os.File) (r Result, err error) {
	err = in(ns, func() error {
		r, err = join()
		return err
	})
	if err != nil {
		return Result{}, errors.Join(err, r.Close())
	}
	return r, nil
}

func join() (r Result, err error) {
	links, err := list(netlink.LinkList)
	if err != nil {
		return r, fmt.Errorf("list the interfaces: %w", err)
	}
	all, err := find(links, TapName(0), card.Most+1)
	if err != nil {
		return r, err
	}
	if len(all) > 1 {
		if err := checkRules(); err != nil {
			return r, err
		}
	}
	if r.Resolver, err = hasResolver(); err != nil {
		return r, err
	}
	taps := tapsOf(links)
	if err := disconnectUnused(links, all); err != nil {
		return r, err
	}
	cards, err := assign(all, taps)
	if err != nil {
		return r, err
	}
	if len(cards) > 1 && taps[1] == nil {
		for number := range card.Most {
			tap, err := MakeTap(nil, TapName(number+1))
			if err != nil {
				return r, err
			}
			r.Taps = append(r.Taps, tap)
		}
	}
	for number, c := range cards {
		if c == nil {
			r.Interfaces = append(r.Interfaces, nil)
			continue
		}
		if err := Connect(c.link, TapName(number)); err != nil {
			return r, fmt.Errorf("join interface %s: %w", c.guest.Name, err)
		}
		if r.Resolver {
			if err := exempt(c.link, number); err != nil {
				return r, err
			}
		}
		r.Interfaces = append(r.Interfaces, c.guest)
	}
	for number, tap := range taps {
		if tap != nil && (number >= len(cards) || cards[number] == nil) {
			if err := disconnect(tap); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// tapsOf returns the VM's taps by the numbers of their cards.
func tapsOf(links []netlink.Link) []netlink.Link {
	taps := make([]netlink.Link, card.Most+1)
	for _, l := range links {
		for number := range taps {
			if l.Type() == tuntap && l.Attrs().Name == TapName(number) {
				taps[number] = l
			}
		}
	}
	return taps
}

// disconnectUnused removes the redirections of interfaces that are not in use any more.
func disconnectUnused(links []netlink.Link, used []found) error {
	for _, l := range links {
		index := l.Attrs().Index
		if isTap(l, "") || slices.ContainsFunc(used, func(f found) bool { return f.link.Attrs().Index == index }) {
			continue
		}
		if err := unexempt(l); err != nil {
			return err
		}
		there, err := targets(l)
		if err == nil {
			err = release(l, there)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// assign returns the interfaces by the numbers of their cards. An interface that is joined with a tap keeps it.
func assign(all []found, taps []netlink.Link) ([]*found, error) {
	cards := make([]*found, len(taps))
	var fresh []*found
	for i := range all {
		there, err := targets(all[i].link)
		if err != nil {
			return nil, err
		}
		number := slices.IndexFunc(taps, func(tap netlink.Link) bool {
			return tap != nil && len(there) > 0 && there[0].to == tap.Attrs().Index
		})
		if number >= 0 && cards[number] == nil {
			cards[number] = &all[i]
		} else {
			fresh = append(fresh, &all[i])
		}
	}
	slices.SortStableFunc(fresh, func(a, b *found) int { return cmp.Compare(a.rank(), b.rank()) })
	for _, f := range fresh {
		cards[slices.Index(cards, nil)] = f // there are at most as many interfaces as cards
	}
	for len(cards) > 0 && cards[len(cards)-1] == nil {
		cards = cards[:len(cards)-1]
	}
	return cards, nil
}

// rank orders new interfaces. The first becomes the pod's first interface, with its addresses.
func (f *found) rank() int {
	switch {
	case f.guest.Name == "eth0":
		return 0
	case slices.ContainsFunc(f.guest.Routes, func(r agentv1.Route) bool { return strings.HasSuffix(r.Destination, "/0") }):
		return 1
	}
	return 2
}

// disconnect silences a tap that has no interface any more.
func disconnect(tap netlink.Link) error {
	if tap.Attrs().Flags&net.FlagUp != 0 {
		if err := netlink.LinkSetDown(tap); err != nil && !gone(err) {
			return fmt.Errorf("bring the tap %s down: %w", tap.Attrs().Name, err)
		}
	}
	there, err := targets(tap)
	if err != nil {
		return err
	}
	return release(tap, there)
}

// Leave undoes Join: it cuts the VM off, and the namespace's own network stack receives the packets of the interfaces
// again. ns is nil for the calling thread's namespace. Leave succeeds if Join was not called. The taps end with their
// files.
func Leave(ns *os.File) error {
	return in(ns, func() error {
		links, err := list(netlink.LinkList)
		if err != nil {
			return fmt.Errorf("list the interfaces: %w", err)
		}
		for _, tap := range tapsOf(links) {
			if tap == nil {
				continue
			}
			if err := disconnect(tap); err != nil {
				return err
			}
		}
		return disconnectUnused(links, nil)
	})
}
