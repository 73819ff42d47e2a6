package interfaces

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/netlink"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
)

// Cards are the VM's network cards by number, and the interfaces that they are for the pod. Calls must not overlap.
type Cards struct {
	links [card.Most + 1]boot.Interface // Index is 0 until the card is found
	have  [card.Most + 1]*agentv1.Network
}

// New returns the cards of a new VM. It has only the first one.
func New(first boot.Interface) *Cards {
	c := &Cards{}
	c.links[0] = first
	return c
}

// unknown is the configuration of a card after a failed change. It differs from every valid one.
var unknown = &agentv1.Network{}

// Update replaces the pod's interfaces, by the numbers of their cards; a nil one goes down. It waits for new cards. An
// interface without a change keeps its connections. Its routes alone can change while it is up. After an
// error the interfaces may have any state, and Update may be called again.
func (c *Cards) Update(wanted []*agentv1.Network) error {
	if err := validate(wanted); err != nil {
		return err
	}
	wanted = append(slices.Clone(wanted), make([]*agentv1.Network, len(c.have)-len(wanted))...)
	if err := c.await(wanted); err != nil {
		return err
	}
	conn, err := netlink.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	var up, changed []int
	// Old routes must be gone before another interface gets the same ones.
	for i, want := range wanted {
		have := c.have[i]
		switch {
		case reflect.DeepEqual(have, want):
			continue
		case have != nil && want != nil && reflect.DeepEqual(withoutRoutes(have), withoutRoutes(want)):
			changed = append(changed, i)
			c.have[i] = unknown
			err = removeRoutes(conn, c.links[i].Index, have.Routes, want.Routes)
		default:
			if want != nil {
				up = append(up, i)
			}
			err = c.clear(conn, i)
		}
		if err != nil {
			return fmt.Errorf("card %d: %w", i, err)
		}
	}
	if err := c.rename(conn, wanted, up); err != nil {
		return err
	}
	for _, i := range up {
		c.have[i] = unknown
		if err := Set(&c.links[i], wanted[i]); err != nil {
			return fmt.Errorf("interface %s: %w", wanted[i].Name, err)
		}
		c.have[i] = wanted[i]
	}
	for _, i := range changed {
		if err := setRoutes(conn, c.links[i].Index, wanted[i]); err != nil {
			return fmt.Errorf("interface %s: %w", wanted[i].Name, err)
		}
		c.have[i] = wanted[i]
	}
	return nil
}

// Further returns the interfaces that have a card other than the first.
func (c *Cards) Further() (all []agentv1.Network) {
	for _, n := range c.have[1:] {
		if n != nil {
			all = append(all, *n)
		}
	}
	return all
}

// Configure sets the pod's first interface, unless n is nil. With rehearsed, a rehearsal's configuration is replaced or
// removed. Otherwise a different one is ErrExists.
func (c *Cards) Configure(n *agentv1.Network, rehearsed bool) error {
	have := c.have[0]
	if n == nil && !rehearsed || reflect.DeepEqual(n, have) {
		return nil
	}
	set := n
	if have != nil {
		if !rehearsed {
			return fmt.Errorf("the interface is already configured differently: %w", errdefs.ErrAlreadyExists)
		}
		same := *have
		if n != nil {
			same.MAC = n.MAC
		}
		if n != nil && reflect.DeepEqual(&same, n) {
			set = &agentv1.Network{MAC: n.MAC} // the rest is the same
		} else if err := Clear(&c.links[0], have); err != nil {
			return err
		}
	}
	if n != nil {
		if err := Set(&c.links[0], set); err != nil {
			return err
		}
	}
	c.have[0] = n
	return nil
}

func validate(wanted []*agentv1.Network) error {
	if len(wanted) > card.Most+1 {
		return fmt.Errorf("%d interfaces: must be at most %d: %w", len(wanted), card.Most+1, errdefs.ErrInvalidArgument)
	}
	taken := map[string]bool{}
	for _, n := range wanted {
		if n == nil {
			continue
		}
		if err := validateName(n.Name, taken); err != nil {
			return err
		}
	}
	return nil
}

func withoutRoutes(n *agentv1.Network) agentv1.Network {
	rest := *n
	rest.Routes = nil
	return rest
}

// await finds the cards of wanted interfaces. It waits for those that the host has just plugged in.
func (c *Cards) await(wanted []*agentv1.Network) error {
	missing := func() bool {
		for i, want := range wanted {
			if want != nil && c.links[i].Index == 0 {
				return true
			}
		}
		return false
	}
	if c.links[0].Index == 0 && wanted[0] != nil {
		return fmt.Errorf("the VM has no network device: %w", errdefs.ErrNotFound)
	}
	if !missing() {
		return nil
	}
	err := netlink.AwaitLinks(cardsTimeout, func() (bool, error) {
		err := c.find()
		return !missing(), err
	})
	if err != nil {
		return fmt.Errorf("wait for network cards: %w", err)
	}
	return nil
}

// find looks for cards that are new, by the hardware addresses that they have at first. IPv6 stays off on them until
// they get an address.
func (c *Cards) find() error {
	const dir = "/sys/class/net"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.ContainsFunc(c.links[:], func(l boot.Interface) bool { return l.Name == e.Name() }) {
			continue
		}
		address, err := os.ReadFile(filepath.Join(dir, e.Name(), "address"))
		if err != nil {
			continue // it may have been removed or renamed
		}
		for i := 1; i < len(c.links); i++ {
			if mac := card.MAC(i - 1); c.links[i].Index != 0 || strings.TrimSpace(string(address)) != mac {
				continue
			} else if err := c.links[i].FindByAddress(mac); err != nil {
				return err
			}
			if c.links[i].Index != 0 {
				if err := c.links[i].IPv6(false); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// clear takes a card down, without addresses and routes.
func (c *Cards) clear(conn *netlink.Conn, i int) error {
	link := &c.links[i]
	if c.have[i] == nil {
		return nil
	}
	c.have[i] = unknown
	// The kernel removes the routes and neighbours.
	if err := conn.Link(link.Index, nil, 0, false); err != nil {
		return err
	}
	if err := link.IPv6(false); err != nil {
		return err
	}
	all, err := (&net.Interface{Index: link.Index, Name: link.Name}).Addrs()
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", link.Name, err)
	}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
		// The kernel removes the secondary addresses with the first of a network.
		if err := conn.RemoveAddress(link.Index, p); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	c.have[i] = nil
	return nil
}

// removeRoutes removes the routes that are not kept.
func removeRoutes(conn *netlink.Conn, index int, routes, kept []agentv1.Route) error {
	for _, r := range slices.Backward(routes) {
		if slices.Contains(kept, r) {
			continue
		}
		to, gateway, err := parseRoute(r)
		if err == nil {
			err = conn.RemoveRoute(index, to, gateway, r.Metric)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rename gives cards that have no configuration the names of their interfaces. Another such card may have the name.
func (c *Cards) rename(conn *netlink.Conn, wanted []*agentv1.Network, cards []int) error {
	rename := func(i int, name string) error {
		// Older kernels rename only interfaces that are down.
		if err := conn.Link(c.links[i].Index, nil, 0, false); err != nil {
			return err
		}
		if err := conn.Rename(c.links[i].Index, name); err != nil {
			return fmt.Errorf("name interface %s: %w", name, err)
		}
		c.links[i].Name = name
		return nil
	}
	for _, i := range cards {
		name := wanted[i].Name
		if c.links[i].Name == name {
			continue
		}
		if err := c.find(); err != nil {
			return err
		}
		holder := slices.IndexFunc(c.links[:], func(l boot.Interface) bool { return l.Name == name })
		if holder >= 0 && c.have[holder] == nil {
			if err := rename(holder, fmt.Sprintf("bulkhead-%d", holder)); err != nil {
				return err
			}
		}
		if err := rename(i, name); err != nil {
			return err
		}
	}
	return nil
}
