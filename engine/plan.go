package engine

import (
	"context"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/parents"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// plan holds the decisions about a pod that can be made before its start.
type plan struct {
	PodRequest
	provider network.Provider
	netNote  string
	vm       hypervisor.VMConfig
	note     string // about the accelerator
	memory   int    // MiB
	quota    int64  // of the CPUs, in microseconds of each period; 0 is all of them
	period   int64
	tenant   string
}

// scratchSize is the size of the pod's scratch disk, in bytes.
func (p *plan) scratchSize() int64 { return max(p.ScratchBytes, disks.Default) }

// key returns the key of the parents that the pod's VM may be forked from.
func (p *plan) key() parents.Key { return parents.Key{VM: p.vm, Tenant: p.tenant} }

// MaxScratch is the size of a VM's disk slot, in bytes.
const MaxScratch = 64 << 30

// check refuses requests that this engine cannot serve.
func (e *Engine) check(r *PodRequest) error {
	switch {
	case r.Key == "":
		return failure.Invalid("the pod has no key")
	case r.ScratchBytes > MaxScratch:
		return &sizing.TooLargeError{What: "bytes of ephemeral storage", Want: r.ScratchBytes, Have: MaxScratch}
	case r.LogDirectory == "":
		return nil
	case !filepath.IsAbs(r.LogDirectory):
		return failure.Invalid("log directory %q is not absolute", r.LogDirectory)
	}
	return failure.Wrap(e.paths.Check(r.LogDirectory), "log directory")
}

// plan decides about a pod. It has no side effects.
func (e *Engine) plan(ctx context.Context, r PodRequest) (*plan, error) {
	p := &plan{PodRequest: r}
	if e.o.Tenant != nil {
		p.tenant = e.o.Tenant(r.Identity)
	}
	size, err := e.kinds.SizeOf(r.Size.Demand, nil)
	if err != nil {
		return nil, err
	}
	p.memory, p.quota, p.period = size.MemoryMiB, quota(size), size.Period
	switch r.Network {
	case "":
		p.Network = e.kinds.Network
	case network.KindNone, network.KindUser, network.KindHostLoopback, network.KindHost, network.KindCNI, network.KindAdopted:
	default:
		return nil, failure.Invalid("unknown network %q (user, none)", r.Network)
	}
	if (p.Network == network.KindAdopted) != (r.Tap != nil) {
		return nil, failure.Invalid("a tap must be given for the network %s, and for no other", network.KindAdopted)
	}
	switch r.Accel {
	case "", hypervisor.Auto, hypervisor.KVM, hypervisor.TCG:
	default:
		return nil, failure.Invalid("unknown accelerator %q (auto, kvm, tcg)", r.Accel)
	}
	if p.provider, err = e.kinds.Networks.Get(p.Network); err != nil {
		return nil, err
	}
	p.vm, p.note, err = e.kinds.Config(ctx, size.VCPUs, p.memory, r.Accel, p.provider)
	if err != nil {
		return nil, err
	}
	if p.memory > p.vm.MaxMem {
		return nil, &sizing.TooLargeError{What: "MiB of memory", Want: int64(p.memory), Have: int64(p.vm.MaxMem)}
	}
	_, p.netNote = p.provider.Kind()
	return p, nil
}

// quota returns a pod's share of the CPUs if its VM has more of them, else 0.
func quota(size sizing.Size) int64 {
	if size.Quota <= 0 || size.Quota >= int64(size.VCPUs)*size.Period {
		return 0
	}
	return size.Quota
}
