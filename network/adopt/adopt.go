// Package adopt lets a VM take the place of the interfaces in a network namespace. Packets that enter an interface
// leave at a tap of the VM, and vice versa. The guest gets the interface's hardware address, addresses, routes and MTU.
// The namespace's own network stack then receives no packet from these interfaces.
package adopt

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/network"
)

// Errors that can be matched.
var (
	// ErrInterface is matched if the namespace has an interface that a VM cannot have.
	ErrInterface = errors.New("an interface that a VM cannot have")
	// ErrNoAddress is matched if the pod's first interface has no address.
	ErrNoAddress = errors.New("it has no address")
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
	if more, err = further(slices.Delete(links, at, at+1), tap); err != nil {
		return nil, nil, err
	}
	if len(more) > 0 {
		if err := checkRules(); err != nil {
			return nil, nil, err
		}
	}
	if guest, err = read(eth); err != nil {
		return nil, nil, fmt.Errorf("read interface %s: %w", name, err)
	}
	if len(guest.Addresses) == 0 {
		return nil, nil, fmt.Errorf("read interface %s: %w", name, ErrNoAddress)
	}
	return guest, more, Connect(eth, tap)
}

// JoinMore creates the taps of further interfaces, and joins each interface with its tap. It works in the calling
// thread's namespace. The caller closes the taps.
func JoinMore(more []*agentv1.Network) (cards []network.Card, err error) {
	for i, guest := range more {
		var file *os.File
		name := furtherTap + strconv.Itoa(i+1)
		if file, err = MakeTap(name); err != nil {
			break
		}
		cards = append(cards, network.Card{Guest: guest, Tap: file})
		l, found := netlink.LinkByName(guest.Name)
		if err = found; err == nil {
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
