// Package demand computes the resource demands of containers and their pods.
package demand

import (
	"math"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Changed returns a pod's demand after an update of one of its containers. The pod's demand is the sum over its
// containers, except for limits of the pod as a whole.
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

// defaultPeriod is the kernel's default, in microseconds.
const defaultPeriod = 100_000

// scale converts a quota to another period.
func scale(quota, own, period int64) int64 {
	if own <= 0 {
		own = defaultPeriod
	}
	return quota * period / own
}

// Of returns a container's demand after an update with r. A negative limit means no limit.
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
