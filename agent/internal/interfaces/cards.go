package interfaces

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/netlink"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
)

// cardsTimeout bounds the wait for cards. The kernel finds them some 100 ms after the host has plugged them in.
const cardsTimeout = 30 * time.Second

// maxInterfaceName is the kernel's limit, in bytes.
const maxInterfaceName = 15

// SetCards waits for the VM's further cards and configures them as the pod's named interfaces. It must run before the
// pod's processes, because it identifies a card by its hardware address.
func SetCards(wanted []agentv1.Network) error {
	if len(wanted) == 0 {
		return nil
	}
	if err := validateCards(wanted); err != nil {
		return err
	}
	cards := make([]boot.Interface, len(wanted))
	err := netlink.AwaitLinks(cardsTimeout, func() (bool, error) {
		for i := range cards {
			if err := cards[i].FindByAddress(card.MAC(i)); err != nil || cards[i].Index == 0 {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d network cards: %w", len(cards), err)
	}
	if err := nameCards(cards, wanted); err != nil {
		return err
	}
	for i := range cards {
		if err := cards[i].IPv6(false); err != nil {
			return err
		}
		if err := Set(&cards[i], &wanted[i]); err != nil {
			return fmt.Errorf("%s: %w", cards[i].Name, err)
		}
	}
	return nil
}

func validateCards(wanted []agentv1.Network) error {
	if len(wanted) > card.Most {
		return fmt.Errorf("%d further interfaces: must be at most %d: %w", len(wanted), card.Most, errdefs.ErrInvalidArgument)
	}
	taken := map[string]bool{"eth0": true}
	for _, n := range wanted {
		if err := validateName(n.Name, taken); err != nil {
			return err
		}
	}
	return nil
}

// validateName checks the name of an interface, and adds it to the names that are taken.
func validateName(name string, taken map[string]bool) error {
	reserved := slices.Contains([]string{"", ".", "..", "all", "default", "lo"}, name)
	if reserved || taken[name] || len(name) > maxInterfaceName || strings.ContainsAny(name, "/: \t\n") {
		return fmt.Errorf("interface %.40q: %w", name, errdefs.ErrInvalidArgument)
	}
	taken[name] = true
	return nil
}

// nameCards renames the cards. The kernel's numbering may give one the name of another. Each rename takes the kernel
// some 10 ms, so none is done without need.
func nameCards(cards []boot.Interface, wanted []agentv1.Network) error {
	c, err := netlink.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	rename := func(card *boot.Interface, name string) error {
		if card.Name == name {
			return nil
		}
		if err := c.Rename(card.Index, name); err != nil {
			return fmt.Errorf("name interface %s: %w", name, err)
		}
		card.Name = name
		return nil
	}
	for i := range cards {
		for j := range cards[i+1:] {
			if other := &cards[i+1+j]; other.Name == wanted[i].Name {
				if err := rename(other, fmt.Sprintf("bulkhead-%d", i)); err != nil {
					return err
				}
			}
		}
		if err := rename(&cards[i], wanted[i].Name); err != nil {
			return err
		}
	}
	return nil
}
