package adopt

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestList checks that list retries while the kernel interrupts the dump, at most asks times, and returns other errors
// at once.
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
			t.Errorf("list after %d interruptions: got %d, error %v, want %d, error %v", tt.interrupted, got, err, tt.interrupted+1, tt.err)
		}
	}
}
