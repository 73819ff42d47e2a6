// Package vms chooses the configuration of an engine's VMs, and holds their templates.
package vms

import (
	"context"
	"os"
	"time"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Source provides accelerators and templates. The engine uses *Templates; tests have fakes. Its methods are safe
// for concurrent use.
type Source interface {
	// Accel resolves the requested accelerator; note says why no better one is available.
	Accel(ctx context.Context, want hypervisor.Accel) (accel hypervisor.Accel, note string, err error)
	// Template returns the template of a VM, and builds it if it is missing. It calls building, if not nil, before
	// that. The files are shared and stay open until the caller releases them.
	Template(ctx context.Context, m hypervisor.VMConfig, building func()) (*Template, error)
	// Answered reports that a clone of m's template was up after took.
	Answered(m hypervisor.VMConfig, took time.Duration)
	// Failed reports that a clone of m's template with that key did not come up. After two failures in a row, the
	// template is condemned, and the next Template builds another one.
	Failed(ctx context.Context, m hypervisor.VMConfig, key string, why error)
	// End ends the VM with its sockets in dir, if there is one.
	End(ctx context.Context, dir string) error
	// List returns the templates on disk.
	List(ctx context.Context) ([]Saved, error)
	// Remove removes the template with that key.
	Remove(ctx context.Context, key string) error
	// Reap removes the remains of killed builders of templates.
	Reap(ctx context.Context) error
	// Close releases the templates' memory; clones keep theirs.
	Close() error
}

// Template is a saved VM for a shim to clone. Its files are valid until Release.
type Template struct {
	Key           string
	Memory, State *os.File
	// Patience is how long the first answer of a healthy clone may take on this host now (shim.Options).
	Patience time.Duration
	// Release reports that no clone is started from the template any more. Further calls have no effect.
	Release func()
}

// Boot memory and the limit of its growth, in MiB. A pod without limits boots with the first size, so that its VM
// need not grow. A smaller pod boots with the next one. A VM can grow to maxMemory, or to the host's memory for a
// larger pod. The limit matters because QEMU's data for pages that may be added takes 3 MB per VM without it.
var (
	bootMemory = []int{512, 256}
	maxMemory  = 4096
)

// maxVCPUs is how many CPUs a VM can grow to, if it does not start with more and the host has as many. Each is a
// thread of QEMU, even while it is offline.
const maxVCPUs = 4

// All VMs of the engine have the same numbers of slots. There is a template for each combination of the rest.
const (
	diskSlots = 12 // images of one pod, and writable disks
	rwSlots   = 5  // the scratch disk, and block devices
)

// Of returns the configuration of a VM for a pod of that size. common is the memory of a pod without limits, in
// MiB.
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

// memoryClass returns the boot memory of a VM for a pod of that size, and the memory that it can grow to.
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
