package boot

import (
	"github.com/bulkhead-project/bulkhead/agent/internal/netlink"
)

// loopback is always interface 1.
func loopback() error {
	c, err := netlink.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Link(1, nil, 0, true)
}
