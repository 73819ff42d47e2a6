package cni

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestList: an interrupted list is read again, but not forever.
func TestList(t *testing.T) {
	for _, tt := range []struct {
		interrupted int
		err         error
	}{{0, nil}, {3, nil}, {1, unix.EPERM}, {asks, netlink.ErrDumpInterrupted}} {
		calls := 0
		got, err := list(func() (int, error) {
			if calls++; calls <= tt.interrupted {
				return -1, netlink.ErrDumpInterrupted
			}
			return calls, tt.err
		})
		if !errors.Is(err, tt.err) || err == nil && got != tt.interrupted+1 {
			t.Errorf("%d times interrupted, then %v: %d, %v", tt.interrupted, tt.err, got, err)
		}
	}
}
