package adopt

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// asks is the number of tries to read a list. The kernel interrupts a list if an entry is added or removed meanwhile,
// as other pods' interfaces are on a busy node.
const asks = 100

// list calls ask until it returns a whole list.
func list[T any](ask func() (T, error)) (all T, err error) {
	for range asks {
		if all, err = ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
