package adopt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/tap"
)

// furtherTap and a number, from 1 on, are the name of the tap of a further interface.
const furtherTap = "bulkhead"

// isTap reports whether an interface is a card of the VM. first is the name of its first card.
func isTap(l netlink.Link, first string) bool {
	name := l.Attrs().Name
	return name == first || l.Type() == "tuntap" && strings.HasPrefix(name, furtherTap)
}

// MakeTap creates a tap in the calling thread's namespace.
func MakeTap(name string) (*os.File, error) {
	card, err := tap.Make(name)
	if err != nil {
		return nil, err
	}
	// The namespace's own kernel must send nothing to the guest.
	silent := "/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6"
	if err := os.WriteFile(silent, []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		card.Close()
		return nil, fmt.Errorf("disable IPv6 on the tap: %w", err)
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
