package agent

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/bulkhead-project/bulkhead/agent/internal/netlink"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// setNetwork gives the machine's only interface the pod's identity, unless a
// rehearsal has done so: a machine keeps its network for life.
func (a *Agent) setNetwork(n *agentv1.Network) error {
	if n == nil || reflect.DeepEqual(n, a.network) {
		return nil
	}
	if a.network != nil {
		return fmt.Errorf("the interface is set up already, and differently: %w", agentv1.ErrExists)
	}
	if err := setInterface(n); err != nil {
		return err
	}
	a.network = n
	return nil
}

func setInterface(n *agentv1.Network) error {
	var mac net.HardwareAddr
	var err error
	if n.MAC != "" {
		if mac, err = net.ParseMAC(n.MAC); err != nil {
			return fmt.Errorf("%w: %w", agentv1.ErrInvalid, err)
		}
	}
	index, err := interfaceIndex()
	if err != nil {
		return err
	}
	c, err := netlink.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Link(index, nil, 0, false); err != nil { // its address cannot change while it is up
		return err
	}
	if err := c.Link(index, mac, n.MTU, true); err != nil {
		return err
	}
	for _, s := range n.Addresses {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("%w: %w", agentv1.ErrInvalid, err)
		}
		if err := c.Address(index, p); err != nil {
			return err
		}
	}
	for _, s := range n.Gateways {
		gateway, err := netip.ParseAddr(s)
		if err != nil {
			return fmt.Errorf("%w: %w", agentv1.ErrInvalid, err)
		}
		if err := c.DefaultRoute(index, gateway); err != nil {
			return err
		}
	}
	return nil
}

// interfaceIndex finds the interface of the machine's network device, the one
// that has a device.
func interfaceIndex() (int, error) {
	const dir = "/sys/class/net"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if _, err := os.Stat(dir + "/" + e.Name() + "/device"); err != nil {
			continue
		}
		data, err := os.ReadFile(dir + "/" + e.Name() + "/ifindex")
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(data)))
	}
	return 0, fmt.Errorf("the machine has no network device: %w", agentv1.ErrNotFound)
}
