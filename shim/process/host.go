package process

import (
	"os/exec"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// host is what a shim needs beyond its own code. The walls are for good, and for the
// whole process: a test puts up none, and its VMs are fakes.
type host struct {
	driver  func() (d hypervisor.Driver, programs []string, err error)
	confine func(confine.Policy) (missing, err error)
	spawn   func(*exec.Cmd, confine.Policy) (missing, err error)
	seal    func(machine int) error
}

// thisHost is a shim's own.
var thisHost = host{
	driver: func() (hypervisor.Driver, []string, error) {
		d, err := qemu.New()
		return d, d.Programs(), err
	},
	confine: confine.Apply,
	spawn:   confine.Start,
	seal:    confine.Seal,
}
