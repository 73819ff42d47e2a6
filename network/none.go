package network

import (
	"context"
	"os"
	"os/exec"
	"syscall"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// None is the Provider of pods without a network: their guests have only a loopback.
type None struct{}

// Kind returns KindNone.
func (None) Kind() (Kind, string) { return KindNone, "" }

// Status returns nil.
func (None) Status(context.Context) error { return nil }

// Example returns nil.
func (None) Example() *agentv1.Network { return nil }

// Attach opens the ports. Their traffic goes over the channel, since the VM has no network device.
func (None) Attach(_ context.Context, r Request) (Attachment, error) {
	return Attachment{Start: alone, Place: nowhere}.attach(r)
}

// alone starts a process in a new, empty network namespace. Only root can create one without a user namespace. For
// other users only the confinement of QEMU and shim keeps them from the host's network.
func alone(cmd *exec.Cmd) error {
	if os.Geteuid() == 0 {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	return cmd.Start()
}

// nowhere returns the place of alone's processes.
func nowhere() (Place, error) { return Place{Alone: os.Geteuid() == 0}, nil }

// Detach does nothing.
func (None) Detach(context.Context, string) error { return nil }

// Close does nothing.
func (None) Close() {}

// Release does nothing.
func (None) Release(context.Context) error { return nil }
