// Package demand says what containers ask for, and pods with them.
package demand

import (
	"math"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Changed is a pod's demand after an update of one of its containers. What the pod states is the sum over its
// containers, unless it is a limit of the pod as a whole.
func Changed(pod store.Size, was, now sizing.Demand) store.Size {
	whole := scale(pod.Quota, int64(pod.Period), defaultPeriod)
	switch {
	case pod.Quota <= 0 || pod.Limits.CPUQuota > 0 || was.Quota == now.Quota && was.Period == now.Period:
	case was.Quota <= 0 || now.Quota <= 0:
		pod.Quota = -1
	default:
		whole += scale(now.Quota, int64(now.Period), defaultPeriod) - scale(was.Quota, int64(was.Period), defaultPeriod)
		pod.Quota, pod.Period = whole, defaultPeriod
		if whole <= 0 {
			pod.Quota = -1
		}
	}
	switch {
	case !pod.StatesMemory() || pod.Limits.MemoryBytes > 0:
	case was.StatesMemory() && now.StatesMemory():
		pod.MemoryLimit = max(1, pod.MemoryLimit+now.MemoryLimit-was.MemoryLimit)
	case was.StatesMemory():
		pod.MemoryLimit, pod.Unstated = max(1, pod.MemoryLimit-was.MemoryLimit), true
	case now.StatesMemory():
		pod.MemoryLimit += now.MemoryLimit
	}
	return pod
}

// defaultPeriod is the kernel's, in microseconds.
const defaultPeriod = 100_000

// scale is a quota of one period as a quota of another.
func scale(quota, own, period int64) int64 {
	if own <= 0 {
		own = defaultPeriod
	}
	return quota * period / own
}

// Of is a container's demand with the resources that r states. A negative limit is none.
func Of(r *specs.LinuxResources, d sizing.Demand) sizing.Demand {
	if r == nil {
		return d
	}
	if r.CPU != nil && r.CPU.Quota != nil && *r.CPU.Quota != 0 {
		d.Quota, d.Period = *r.CPU.Quota, 0
		if r.CPU.Period != nil {
			d.Period = min(*r.CPU.Period, math.MaxInt64)
		}
	}
	if r.CPU != nil && r.CPU.Shares != nil {
		d.Shares = *r.CPU.Shares
	}
	if r.Memory != nil && r.Memory.Limit != nil {
		d.MemoryLimit = *r.Memory.Limit
	}
	return d
}
