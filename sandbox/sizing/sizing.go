// Package sizing says how large a machine must be for the containers of its pod.
// Everything in it is pure.
package sizing

import (
	"errors"
	"fmt"
	"math"
	"math/big"
)

// ErrTooLarge is matched by every *TooLargeError.
var ErrTooLarge = errors.New("more than the host has")

// TooLargeError is a pod that does not fit the host, or no longer its machine.
type TooLargeError struct {
	What       string // "CPUs", "MiB of memory"
	Want, Have int64
	Machine    bool // the bound is that of the VM that the pod has
}

// Error names what is wanted and what there is.
func (e *TooLargeError) Error() string {
	if e.Machine {
		return fmt.Sprintf("the pod needs %d %s, its VM was started for at most %d: state its resources when you start it, or lower its limits",
			e.Want, e.What, e.Have)
	}
	return fmt.Sprintf("the pod wants %d %s, the host has %d: lower its limits (resources)", e.Want, e.What, e.Have)
}

// Is matches ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// Demand is what one container asks for, in the units of the OCI runtime
// specification and of CRI. Zero, and a negative limit, is nothing asked.
type Demand struct {
	Quota       int64  // microseconds of CPU time in each period; the limit
	Period      uint64 // microseconds; 0 is 100000
	Shares      uint64 // 1024 a CPU; the request
	MemoryLimit int64  // bytes
	HugePages   int64  // bytes, which the memory does not count; of a pod only
	// Unstated says that some of those that this stands for ask for no memory, and
	// get what pods get that ask for nothing, on top.
	Unstated bool
}

// Defaults are what pods get that ask for nothing, and what the guest needs for
// itself.
type Defaults struct {
	VCPUs       int // for pods without any CPU limit or request
	MemoryMiB   int // shared by containers without a memory limit
	MinimumMiB  int // of any machine
	OverheadMiB int // kernel and agent, on top of what the containers ask for
}

// Default is one virtual CPU, and a VM of 512 MiB for a pod that
// states no limit. The overhead is measured: of 384 MiB the guest had 243
// available after its start.
var Default = Defaults{VCPUs: 1, MemoryMiB: 352, MinimumMiB: 256, OverheadMiB: 160}

// The memory of the VM of a pod that states no limit is half of the host's, within these bounds in MiB. Memory that
// a guest never touches costs the host nothing.
const (
	leastDefault = 512
	mostDefault  = 2048
)

// DefaultsFor is Default on a host, with a memory of VMs in MiB and a number of virtual CPUs that somebody has
// chosen; 0 is what fits the host.
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

// Host is what the machines of a host share.
type Host struct {
	CPUs      int
	MemoryMiB int
}

// Size is what a pod's machine is made of.
type Size struct {
	VCPUs     int // a class: 1, 2, 4, 8, …
	MemoryMiB int // a multiple of MemoryAlign
	// Quota, in microseconds of each Period, is the pod's exact share of the
	// CPUs for its cgroup on the host; 0 is no limit, because one container has none.
	Quota, Period int64
}

// MemoryAlign is the unit of machines' memory, in MiB: pods of similar size
// share a template.
const MemoryAlign = 128

// MaxVCPUClass is the largest machine.
const MaxVCPUClass = 64

const defaultPeriod = 100_000 // microseconds

// SizeOf sizes a machine for a pod with containers. A pod that states its CPUs, or its memory, gets
// what it states; one that does not gets the sum over its containers. CPUs are the sum of
// quota/period, or shares/1024 of a container without a quota, rounded up
// once and then up to a class; memory is the sum of limits and the
// guest's overhead, aligned up. It returns a *TooLargeError for a pod that the host cannot hold.
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
		return Size{}, fmt.Errorf("%d virtual CPUs (at most %d): %w", want, MaxVCPUClass, ErrTooLarge)
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

// StatesCPUs reports whether the demand says how many CPUs there are to be, or that there is no limit.
func (d Demand) StatesCPUs() bool { return d.Quota != 0 || d.Shares > minShares }

// StatesMemory reports whether the demand limits the memory.
func (d Demand) StatesMemory() bool { return d.memory() > 0 }

// parts are the demands to sum up: the containers', unless the pod states its own or has none.
func (d Demand) parts(containers []Demand, states bool) []Demand {
	if states || len(containers) == 0 {
		return []Demand{d}
	}
	return containers
}

// sumCPU adds up the CPUs, exactly: three thirds are one. It also tells whether every
// container has a limit, so that their sum is one.
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
	if d.Shares > minShares { // what the kubelet writes for no request
		return new(big.Rat).SetFrac(new(big.Int).SetUint64(d.Shares), big.NewInt(1024))
	}
	return new(big.Rat)
}

// sumMemory is the machine's memory in MiB. The pod's huge pages come on top.
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
	mib := (sum-1)>>20 + 1 // up: 512 bytes are not nothing
	mib = max(mib, int64(c.MinimumMiB))
	return (mib + MemoryAlign - 1) / MemoryAlign * MemoryAlign
}

// unlimited is above every real limit; callers write "none" as the largest
// multiple of the page size.
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

// minShares is the kernel's least value of cpu.shares.
const minShares = 2

// class is the smallest power of two that is at least n.
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

// saturate adds up to a bound that leaves room for rounding.
func saturate(a, b int64) int64 {
	const bound = math.MaxInt64 >> 2
	return min(min(a, bound)+min(b, bound), bound)
}
