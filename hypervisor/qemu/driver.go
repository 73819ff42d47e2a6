// Package qemu runs virtual machines with QEMU: q35, virtio devices, two virtio-serial ports and two QMP sockets. The
// owner controls the VM over the first socket; the second ends a VM when its owner hangs. A VM outlives the process
// that started it, and any other process may adopt it.
//
// QEMU is part of the threat model: it gets descriptors instead of paths, its own seccomp filter is on, and all its
// output is bounded.
package qemu

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// Driver starts VMs with one QEMU program. It is safe for concurrent use and holds no state.
type Driver struct {
	// Program is the path of qemu-system-x86_64.
	Program string
	// Holes is the path of the library that keeps a clone's memory beyond the template's in private anonymous memory
	// (hypervisor/warm/preload). Without it that memory is counted twice.
	Holes string
}

var _ hypervisor.Driver = Driver{}

// New finds QEMU in the search path, or where BULKHEAD_QEMU says.
func New() (Driver, error) {
	name := os.Getenv("BULKHEAD_QEMU")
	if name == "" {
		name = "qemu-system-x86_64"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return Driver{}, fmt.Errorf("find QEMU: %w (install qemu-system-x86 or set BULKHEAD_QEMU)", err)
	}
	holes, err := dirs.Sibling("bulkhead-warm.so")
	if err != nil {
		holes = "" // other processors have no such library
	}
	return Driver{Program: path, Holes: holes}, nil
}

// Programs returns the files that a VM's process executes: QEMU, and the library if there is one.
func (d Driver) Programs() []string {
	if d.Holes == "" {
		return []string{d.Program}
	}
	return []string{d.Program, d.Holes}
}

// Boot implements hypervisor.Driver.
func (d Driver) Boot(ctx context.Context, m hypervisor.VMConfig, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	v, err := d.start(ctx, m, f, o, boot)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Clone implements hypervisor.Driver.
func (d Driver) Clone(ctx context.Context, m hypervisor.VMConfig, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	if f.Memory == nil || f.State == nil {
		return nil, fmt.Errorf("clone a VM: %w: no memory or no state given", hypervisor.ErrInvalid)
	}
	v, err := d.start(ctx, m, f, o, clone)
	if err != nil {
		return nil, err
	}
	if err := v.restore(ctx, f.State); err != nil {
		v.abandon()
		return nil, err
	}
	return v, nil
}
