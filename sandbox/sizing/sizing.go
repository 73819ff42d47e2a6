// Package sizing computes the size of a VM from the demands of its pod's containers. All its functions are pure.
package sizing

import (
	"fmt"
	"math"
	"math/big"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// TooLargeError is returned for a pod that does not fit the host or its VM.
type TooLargeError struct {
	What       string // "CPUs", "MiB of memory"
	Want, Have int64
	VM         bool // the bound is the VM's, not the host's
}

// Error names the demand and the bound.
func (e *TooLargeError) Error() string {
	if e.VM {
		return fmt.Sprintf("the pod needs %d %s, its VM was started for at most %d: state its resources when you start it, or lower its limits",
			e.Want, e.What, e.Have)
	}
	return fmt.Sprintf("the pod wants %d %s, the host has %d: lower its limits (resources)", e.Want, e.What, e.Have)
}

// Unwrap returns the class.
func (e *TooLargeError) Unwrap() error { return errdefs.ErrResourceExhausted }

// Demand is the demand of one container, in the units of the OCI runtime specification and of the CRI. Zero and
// negative limits mean no demand.
type Demand struct {
	Quota       int64  // microseconds of CPU time per period; the limit
	Period      uint64 // microseconds; 0 is 100000
	Shares      uint64 // 1024 per CPU; the request
	MemoryLimit int64  // bytes
	HugePages   int64  // bytes, not included in the memory; of a pod only
	// Unstated reports that this demand sums up several containers of which some state no memory. They get the default
	// memory on top.
	Unstated bool
}

// Defaults are the sizes for pods that state no demand, and the guest's own needs.
type Defaults struct {
	VCPUs       int // for pods without any CPU limit or request
	MemoryMiB   int // shared by containers without a memory limit
	MinimumMiB  int // of any VM
	OverheadMiB int // kernel and agent, on top of the containers' demands
}

// Default is one virtual CPU, and a VM of 512 MiB for a pod that states no limit. The overhead is measured: of 384 MiB,
// the guest had 243 MiB available after its start.
var Default = Defaults{VCPUs: 1, MemoryMiB: 352, MinimumMiB: 256, OverheadMiB: 160}

// The default memory of a VM is half of the host's, within these bounds in MiB. Memory that a guest never touches costs
// the host nothing.
const (
	leastDefault = 512
	mostDefault  = 2048
)

// DefaultsFor returns the defaults on a host. memoryMiB is a configured memory of VMs in MiB and vcpus a configured
// number of virtual CPUs; 0 derives them from the host.
func DefaultsFor(h Host, memoryMiB, vcpus int) Defaults {
	d := Default
	if memoryMiB == 0 {
		memoryMiB = min(max(h.MemoryMiB/2, leastDefault), mostDefault)
	}
	if h.MemoryMiB > 0 {
		memoryMiB = min(memoryMiB, h.MemoryMiB) // a default never makes a pod too large
	}
	d.MemoryMiB = max(memoryMiB/MemoryAlign*MemoryAlign, d.MinimumMiB) - d.OverheadMiB
	if vcpus > 0 {
		d.VCPUs = vcpus
	}
	return d
}

// Host is the capacity that a host's VMs share.
type Host struct {
	CPUs      int
	MemoryMiB int
}

// Size is the size of a pod's VM.
type Size struct {
	VCPUs     int // a class: 1, 2, 4, 8, …
	MemoryMiB int // a multiple of MemoryAlign
	// Quota, in microseconds per Period, is the pod's exact share of the CPUs for its cgroup on the host. 0 is no
	// limit, because one container has none.
	Quota, Period int64
}

// MemoryAlign is the unit of a VM's memory, in MiB: pods of similar size share a template.
const MemoryAlign = 128

// MaxVCPUClass is the number of virtual CPUs of the largest VM.
const MaxVCPUClass = 64

const defaultPeriod = 100_000 // microseconds

// SizeOf computes the size of a VM for a pod with its containers. If the pod states its CPUs or its memory, those
// count; otherwise the sum over its containers does. A container's CPUs are quota/period, or shares/1024 without a
// quota. Their sum is rounded up once, and then up to a class. Memory is the sum of limits plus the guest's overhead,
// aligned up. SizeOf returns a *TooLargeError for a pod that does not fit the host.
func SizeOf(pod Demand, containers []Demand, host Host, c Defaults) (Size, error) {
	cpus, limit := sumCPU(pod.parts(containers, pod.StatesCPUs()))
	want := max(ceil(cpus), 1)
	if cpus.Sign() == 0 {
		want = int64(max(c.VCPUs, 1))
	}
	if host.CPUs > 0 && want > int64(host.CPUs) {
		if cpus.Sign() != 0 {
			return Size{}, &TooLargeError{What: "CPUs", Want: want, Have: int64(host.CPUs)}
		}
		want = int64(host.CPUs) // a default never makes a pod too large
	}
	if want > MaxVCPUClass {
		return Size{}, errclass.New(errdefs.ErrResourceExhausted, "%d virtual CPUs (at most %d): more than the host has", want, MaxVCPUClass)
	}
	memory := sumMemory(pod.parts(containers, pod.StatesMemory()), pod.HugePages, c)
	if host.MemoryMiB > 0 && memory > int64(host.MemoryMiB) {
		return Size{}, &TooLargeError{What: "MiB of memory", Want: memory, Have: int64(host.MemoryMiB)}
	}
	s := Size{VCPUs: class(int(want)), MemoryMiB: int(memory), Period: defaultPeriod}
	if limit {
		s.Quota = ceil(new(big.Rat).Mul(cpus, big.NewRat(defaultPeriod, 1)))
	}
	return s, nil
}

// StatesCPUs reports whether the demand states a number of CPUs, or that there is no limit.
func (d Demand) StatesCPUs() bool { return d.Quota != 0 || d.Shares > minShares }

// StatesMemory reports whether the demand limits the memory.
func (d Demand) StatesMemory() bool { return d.memory() > 0 }

// parts returns the demands to sum up: the containers', unless the pod states its own or has no containers.
func (d Demand) parts(containers []Demand, states bool) []Demand {
	if states || len(containers) == 0 {
		return []Demand{d}
	}
	return containers
}

// sumCPU adds up the CPUs exactly: three thirds are one. It also reports whether every container has a limit, which
// makes the sum a limit.
func sumCPU(demands []Demand) (*big.Rat, bool) {
	sum, limited := new(big.Rat), true
	for _, d := range demands {
		limited = limited && d.Quota > 0
		sum.Add(sum, d.cpus())
	}
	return sum, limited
}

func (d Demand) cpus() *big.Rat {
	if d.Quota > 0 {
		return new(big.Rat).SetFrac(big.NewInt(d.Quota), new(big.Int).SetUint64(d.period()))
	}
	if d.Shares > minShares { // the kubelet writes minShares for no request
		return new(big.Rat).SetFrac(new(big.Int).SetUint64(d.Shares), big.NewInt(1024))
	}
	return new(big.Rat)
}

// sumMemory returns the VM's memory in MiB. The pod's huge pages come on top.
func sumMemory(demands []Demand, hugePages int64, c Defaults) int64 {
	sum, unstated := max(hugePages, 0), false
	for _, d := range demands {
		ask := d.memory()
		unstated = unstated || ask == 0 || d.Unstated
		sum = saturate(sum, ask)
	}
	if unstated {
		sum = saturate(sum, int64(c.MemoryMiB)<<20)
	}
	sum = saturate(sum, int64(c.OverheadMiB)<<20)
	mib := (sum-1)>>20 + 1 // round up
	mib = max(mib, int64(c.MinimumMiB))
	return (mib + MemoryAlign - 1) / MemoryAlign * MemoryAlign
}

// unlimited exceeds every real limit. Callers express "no limit" as the largest multiple of the page size.
const unlimited = math.MaxInt64 >> 1

func (d Demand) memory() int64 {
	if d.MemoryLimit > 0 && d.MemoryLimit < unlimited {
		return d.MemoryLimit
	}
	return 0
}

func (d Demand) period() uint64 {
	if d.Period == 0 {
		return defaultPeriod
	}
	return d.Period
}

// minShares is the kernel's minimum of cpu.shares.
const minShares = 2

// class returns the smallest power of two that is at least n.
func class(n int) int {
	c := 1
	for c < n {
		c *= 2
	}
	return c
}

// ceil rounds up, and saturates.
func ceil(r *big.Rat) int64 {
	n := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	if n.Quo(n, r.Denom()); !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

// saturate adds, up to a bound that leaves room for rounding.
func saturate(a, b int64) int64 {
	const bound = math.MaxInt64 >> 2
	return min(min(a, bound)+min(b, bound), bound)
}
