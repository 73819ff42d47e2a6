package network

import (
	"context"
	"os"
	"os/exec"
	"syscall"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// None is the Provider of pods without a network: their guests have a
// loopback and nothing else.
type None struct{}

// Kind is always hypervisor.NetworkNone.
func (None) Kind() (hypervisor.Network, string) { return hypervisor.NetworkNone, "" }

// Attach has nothing to do: the machine has no network device.
func (None) Attach(context.Context, string) (Attachment, error) {
	return Attachment{Start: alone}, nil
}

// alone starts a process in a network namespace of its own, in which there is
// nothing. Only root can make one just like that; for others nothing but the
// walls around QEMU and shim keeps them from the host's network.
func alone(cmd *exec.Cmd) error {
	if os.Geteuid() == 0 {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	return cmd.Start()
}

// Detach does nothing.
func (None) Detach(context.Context, string) error { return nil }

// Release does nothing.
func (None) Release(context.Context) error { return nil }
