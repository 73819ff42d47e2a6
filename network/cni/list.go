package cni

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// asks is how often a list is asked for. The kernel says of one that it was interrupted when
// something came or went while it was told, as other pods' interfaces do on a busy node.
const asks = 100

// list is what ask lists, whole.
func list[T any](ask func() (T, error)) (all T, err error) {
	for range asks {
		if all, err = ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
