package boot

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bulkhead-project/bulkhead/agent/internal/netlink"
)

// Interface is the VM's network interface; Index is 0 for none. Setup finds it once.
type Interface struct {
	Index int
	Name  string
}

// network brings up loopback, which is always interface 1, and the VM's interface, without addresses. IPv6 stays off on
// it until it gets an IPv6 address, because the kernel's own traffic would keep a clone busy.
func (i *Interface) network() error {
	c, err := netlink.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Link(1, nil, 0, true); err != nil {
		return err
	}
	if err := i.find(); err != nil || i.Index == 0 {
		return err
	}
	if err := i.IPv6(false); err != nil {
		return err
	}
	return c.Link(i.Index, nil, 0, true)
}

// IPv6 switches IPv6 on the interface on or off. Off is a no-op on a kernel without IPv6.
func (i *Interface) IPv6(on bool) error {
	value := "1"
	if on {
		value = "0"
	}
	err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", i.Name, "disable_ipv6"), []byte(value), 0)
	if errors.Is(err, os.ErrNotExist) && !on {
		return nil
	}
	return err
}

// FindByAddress finds the interface with a hardware address. Index is 0 if there is none.
func (i *Interface) FindByAddress(mac string) error {
	return i.search("address", func(content string) bool { return strings.TrimSpace(content) == mac })
}

// find finds the interface of the VM's network device.
func (i *Interface) find() error {
	return i.search("device/uevent", func(string) bool { return true })
}

// search finds the first interface with an attribute that matches.
func (i *Interface) search(attribute string, right func(content string) bool) error {
	const dir = "/sys/class/net"
	*i = Interface{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name(), attribute))
		if err != nil || !right(string(content)) {
			continue // it may have been removed or renamed
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name(), "ifindex"))
		if err != nil {
			return err
		}
		i.Name = e.Name()
		i.Index, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err
	}
	return nil
}
