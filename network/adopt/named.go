package adopt

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	"github.com/bulkhead-project/bulkhead/network"
)

// JoinNamed joins the interface with that name and the VM's tap, which exists. It returns the settings for the guest,
// so that it takes the place of that interface and of the further ones. It works in the calling thread's namespace.
func JoinNamed(name, tap string) (guest *agentv1.Network, more []*agentv1.Network, err error) {
	links, err := list(netlink.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("list the interfaces: %w", err)
	}
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == name })
	if at < 0 {
		return nil, nil, fmt.Errorf("the network has no interface %s", name)
	}
	eth := links[at]
	further, err := find(slices.Delete(links, at, at+1), tap, card.Most)
	if err != nil {
		return nil, nil, err
	}
	if len(further) > 0 {
		if err := checkRules(); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range further {
		more = append(more, f.guest)
	}
	if guest, err = read(eth); err != nil {
		return nil, nil, fmt.Errorf("read interface %s: %w", name, err)
	}
	if len(guest.Addresses) == 0 {
		return nil, nil, fmt.Errorf("read interface %s: it has no address", name)
	}
	return guest, more, Connect(eth, tap)
}

// JoinMore creates the taps of further interfaces, and joins each interface with its tap. It works in the calling
// thread's namespace. The caller closes the taps.
func JoinMore(more []*agentv1.Network) (cards []network.Card, err error) {
	for i, guest := range more {
		var file *os.File
		name := TapName(i + 1)
		if file, err = MakeTap(nil, name); err != nil {
			break
		}
		cards = append(cards, network.Card{Guest: guest, Tap: file})
		l, missing := netlink.LinkByName(guest.Name)
		if err = missing; err == nil {
			err = Connect(l, name)
		}
		if err != nil {
			err = fmt.Errorf("join interface %s: %w", guest.Name, err)
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, network.CloseCards(cards))
	}
	return cards, nil
}
