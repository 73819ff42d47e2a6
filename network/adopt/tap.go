package adopt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/tap"
	"github.com/bulkhead-project/bulkhead/network/adopt/inside"
)

// TapName returns the name of the tap behind a card of a VM, from number 0 on.
func TapName(card int) string { return inside.TapPrefix + strconv.Itoa(card) }

// tuntap is the type of taps.
const tuntap = "tuntap"

// isTap reports whether an interface is a card of the VM. first is the name of its first card.
func isTap(l netlink.Link, first string) bool {
	name := l.Attrs().Name
	return name == first || l.Type() == tuntap && strings.HasPrefix(name, inside.TapPrefix)
}

// MakeTap creates a tap in a network namespace. ns is nil for the calling thread's namespace. The tap exists until the
// file is closed, wherever the file is passed. The caller closes it.
func MakeTap(ns *os.File, name string) (card *os.File, err error) {
	err = in(ns, func() error {
		if card, err = tap.Make(name); err != nil {
			return err
		}
		// The namespace's own kernel must send nothing to the guest.
		silent := "/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6"
		if err := os.WriteFile(silent, []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			card.Close()
			return fmt.Errorf("disable IPv6 on the tap: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return card, nil
}

// Silence disconnects the VM from the network of the calling thread's namespace. first is the name of its first tap.
func Silence(first string) error {
	links, err := list(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	for _, l := range links {
		if !isTap(l, first) {
			continue
		}
		// The VM may end, and its taps with it.
		if err := netlink.LinkSetDown(l); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("bring the VM's tap down: %w", err)
		}
	}
	return nil
}
