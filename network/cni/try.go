package cni

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/tap"
	"github.com/bulkhead-project/bulkhead/internal/thread"
	"github.com/bulkhead-project/bulkhead/network/adopt"
)

// Try checks that this host's kernel can run pods' networks: a VM's tap in a network namespace, and the redirection of
// packets between two interfaces. It leaves nothing behind.
func Try() (taps, redirection error) {
	taps = thread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("create a network namespace: %w", os.NewSyscallError("unshare", err))
		}
		card, err := prepare()
		if err != nil {
			return err
		}
		defer card.Close()
		other, err := tap.Make(ifName)
		if err != nil {
			return err
		}
		defer other.Close()
		redirection = tryRedirection()
		return nil
	})
	return taps, redirection
}

func tryRedirection() error {
	eth, err := netlink.LinkByName(ifName)
	if err != nil {
		return err
	}
	return adopt.Connect(eth, tapName)
}
