package cri

import (
	"cmp"
	"context"
	"os"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// machines decide how machines run and hold the templates that they are cloned
// from; tests have others.
type machines interface {
	// Accel resolves what is wanted; note says why it is not better.
	Accel(ctx context.Context, want hypervisor.Accel) (accel hypervisor.Accel, note string, err error)
	// Template returns the template of a machine, built if it is missing.
	// The files are shared and stay open until Close.
	Template(ctx context.Context, m hypervisor.Machine) (*template, error)
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

// What every machine of the engine has, whatever its pod: templates are kept
// for each combination of the rest.
const (
	bootMemory = 256 // MiB; a machine grows to its pod's size
	diskSlots  = 8   // images of one pod, and its scratch disk
	rwSlots    = 1   // the scratch disk
)

// machineFor is the machine of a pod with so many virtual CPUs.
func (s *Service) machineFor(ctx context.Context, vcpus int, accel hypervisor.Accel, p network.Provider) (hypervisor.Machine, string, error) {
	accel, note, err := s.machines.Accel(ctx, s.accelWanted(accel))
	if err != nil {
		return hypervisor.Machine{}, "", err
	}
	kind, _ := p.Kind()
	return hypervisor.Machine{
		Kernel: s.o.Guest.KernelPath(), Initrd: s.o.Guest.InitrdPath(), Cmdline: s.o.Guest.Cmdline,
		Accel: accel, VCPUs: vcpus, Memory: bootMemory, MaxMem: maxMemory(s.host),
		Slots: diskSlots, Scratch: rwSlots, Network: kind,
	}, note, nil
}

// accelWanted is what a pod gets that wants this one.
func (s *Service) accelWanted(pod hypervisor.Accel) hypervisor.Accel {
	return cmp.Or(pod, s.o.Accel, hypervisor.Auto)
}

// maxMemory is the host's, so that one template serves pods of every size.
func maxMemory(h sandbox.Host) int {
	return max(h.MemoryMiB/sandbox.MemoryAlign*sandbox.MemoryAlign, bootMemory)
}
