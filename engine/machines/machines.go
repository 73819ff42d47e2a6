// Package machines decides how the VMs of an engine run, and holds the templates
// that they are cloned from.
package machines

import (
	"context"
	"os"
	"time"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Source gives VMs; *Templates is the one of an engine, tests have others. Its
// methods may be called at once.
type Source interface {
	// Accel resolves what is wanted; note says why it is not better.
	Accel(ctx context.Context, want hypervisor.Accel) (accel hypervisor.Accel, note string, err error)
	// Template returns the template of a machine, built if it is missing:
	// building, if not nil, is called before that. The files are shared and stay
	// open until the caller releases them.
	Template(ctx context.Context, m hypervisor.VMConfig, building func()) (*Template, error)
	// Answered tells that a clone of m's template was up after a time.
	Answered(m hypervisor.VMConfig, took time.Duration)
	// Failed tells that a clone of the template with that key, m's, was never up.
	// A template of which two clones in a row fail is condemned: the next Template
	// builds another.
	Failed(ctx context.Context, m hypervisor.VMConfig, key string, why error)
	// End ends the VM whose sockets lie in dir, if there is one.
	End(ctx context.Context, dir string) error
	// List tells of the templates on disk.
	List(ctx context.Context) ([]Saved, error)
	// Remove removes the template with that key.
	Remove(ctx context.Context, key string) error
	// Reap clears up after builders of templates that were killed.
	Reap(ctx context.Context) error
	// Close gives the templates' memory back; clones keep theirs.
	Close() error
}

// Template is a saved VM as a shim clones it. Its files are valid until Release.
type Template struct {
	Key           string
	Memory, State *os.File
	// Patience is what the first answer of a healthy clone may take on this host
	// now, as shim.Options have it.
	Patience time.Duration
	// Release says that no clone is started from this any more. More calls of it do
	// nothing.
	Release func()
}

// What VMs boot with, in MiB: the size of a pod that states no limit, so that the
// common one need not be grown; a smaller pod gets the next of bootMemory. They can grow to
// maxMemory, or to the host's memory if their pod is larger: what QEMU keeps for
// each page that might come weighs 3 MB a VM otherwise.
var (
	bootMemory = []int{512, 256}
	maxMemory  = 4096
)

// maxVCPUs is how many CPUs a VM can be grown to on a host that has as many, if it is not
// made with more: each is a thread of QEMU's, also while it is offline.
const maxVCPUs = 4

// What every VM of the engine has, whatever its pod: templates are kept for each
// combination of the rest.
const (
	diskSlots = 12 // images of one pod, and what is writable
	rwSlots   = 5  // the scratch disk, and block devices
)

// Of is the machine of a pod of that size; common is the memory of a pod that states no limit, in MiB.
func Of(
	b guest.Bundle, h sizing.Host, vcpus, memory, common int, accel hypervisor.Accel, net hypervisor.Network,
) hypervisor.VMConfig {
	boot, most := memoryClass(memory, common, h)
	return hypervisor.VMConfig{
		Kernel: b.KernelPath(), Initrd: b.InitrdPath(), Cmdline: b.Cmdline,
		Accel: accel, VCPUs: vcpus, MaxVCPUs: max(vcpus, min(h.CPUs, maxVCPUs)), Memory: boot, MaxMem: most,
		Slots: diskSlots, Scratch: rwSlots, Network: net,
	}
}

// memoryClass is what the VM of a pod of that size boots with, and what it can be
// grown to.
func memoryClass(memory, common int, h sizing.Host) (boot, most int) {
	boot = bootMemory[len(bootMemory)-1]
	for _, m := range append([]int{common}, bootMemory...) {
		if m <= memory {
			boot = m
			break
		}
	}
	most = h.MemoryMiB / sizing.MemoryAlign * sizing.MemoryAlign
	if memory <= maxMemory {
		most = min(most, maxMemory)
	}
	return boot, max(most, boot)
}
