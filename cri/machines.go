package cri

import (
	"cmp"
	"context"
	"os"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// machines decide how machines run and hold the templates that they are cloned
// from; tests have others.
type machines interface {
	// Accel resolves what is wanted; note says why it is not better.
	Accel(ctx context.Context, want hypervisor.Accel) (accel hypervisor.Accel, note string, err error)
	// Template returns the template of a machine, built if it is missing:
	// building, if not nil, is called before that. The files are shared and stay
	// open until Close.
	Template(ctx context.Context, m hypervisor.Machine, building func()) (*template, error)
	// End ends the machine whose sockets lie in dir, if there is one.
	End(ctx context.Context, dir string) error
	// Reap clears up after builders of templates that were killed.
	Reap(ctx context.Context) error
	Close() error
}

// template is a saved machine as a shim clones it.
type template struct {
	key           string
	memory, state *os.File
}

// What machines boot with, in MiB: what a pod that states no limit gets, so
// that the common one need not be grown; a smaller pod gets the minimum. They
// can grow to maxMemory, or to the host's memory if their pod is larger: what
// QEMU keeps for each page that might come weighs 3 MB a machine otherwise.
var (
	bootMemory = []int{512, 256}
	maxMemory  = 4096
)

// What every machine of the engine has, whatever its pod: templates are kept
// for each combination of the rest.
const (
	diskSlots = 8 // images of one pod, and its scratch disk
	rwSlots   = 1 // the scratch disk
)

// machineFor is the machine of a pod with so many virtual CPUs and so much
// memory, in MiB.
func (s *Service) machineFor(ctx context.Context, vcpus, memory int, accel hypervisor.Accel, p network.Provider) (hypervisor.Machine, string, error) {
	accel, note, err := s.machines.Accel(ctx, s.accelWanted(accel))
	if err != nil {
		return hypervisor.Machine{}, "", err
	}
	kind, _ := p.Kind()
	boot, most := memoryClass(memory, s.host)
	return hypervisor.Machine{
		Kernel: s.o.Guest.KernelPath(), Initrd: s.o.Guest.InitrdPath(), Cmdline: s.o.Guest.Cmdline,
		Accel: accel, VCPUs: vcpus, Memory: boot, MaxMem: most,
		Slots: diskSlots, Scratch: rwSlots, Network: deviceOf(kind),
	}, note, nil
}

// accelWanted is what a pod gets that wants this one.
func (s *Service) accelWanted(pod hypervisor.Accel) hypervisor.Accel {
	return cmp.Or(pod, s.o.Accel, hypervisor.Auto)
}

// memoryClass is what the machine of a pod of that size boots with, and what it
// can be grown to.
func memoryClass(memory int, h sizing.Host) (boot, most int) {
	boot = bootMemory[len(bootMemory)-1]
	for _, m := range bootMemory {
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
