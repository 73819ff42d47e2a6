package network

import (
	"context"
	"os/exec"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// None is the Provider of pods without a network: their guests have a
// loopback and nothing else.
type None struct{}

// Kind is always hypervisor.NetworkNone.
func (None) Kind() (hypervisor.Network, string) { return hypervisor.NetworkNone, "" }

// Attach has nothing to do: the machine has no network device.
func (None) Attach(context.Context, string) (Attachment, error) {
	return Attachment{Start: (*exec.Cmd).Start}, nil
}

// Detach does nothing.
func (None) Detach(context.Context, string) error { return nil }

// Release does nothing.
func (None) Release(context.Context) error { return nil }
