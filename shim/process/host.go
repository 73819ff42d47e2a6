package process

import (
	"os/exec"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// host is the part of the shim that a test replaces. Confinement is permanent and covers the whole process, so tests do
// not confine, and their VMs are fakes.
type host struct {
	driver  func() (d hypervisor.Driver, programs []string, err error)
	confine func(confine.Policy) (missing, err error)
	spawn   func(*exec.Cmd, confine.Policy) (missing, err error)
	seal    func(vm int) error
}

// thisHost is the host of a real shim.
var thisHost = host{
	driver: func() (hypervisor.Driver, []string, error) {
		d, err := qemu.New()
		return d, d.Programs(), err
	},
	confine: confine.Apply,
	spawn:   confine.Start,
	seal:    confine.Seal,
}
