package config

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

const (
	cpuPeriod = 100_000 // microseconds
	minQuota  = 1_000   // microseconds
	minShares = 2
	maxShares = 262_144
)

// Resources returns a container's limits for the CRI. The pod's limits apply where the container has none.
func Resources(pod *corev1.Pod, container *corev1.Container) *runtimeapi.LinuxContainerResources {
	limits := corev1.ResourceList{}
	if own := pod.Spec.Resources; own != nil {
		addAll(limits, own.Limits)
	}
	for name, quantity := range container.Resources.Limits {
		if !quantity.IsZero() {
			limits[name] = quantity
		}
	}
	out := linuxResources(limits, podspec.Requests(container.Resources))
	out.OomScoreAdj = oomScore(pod, container)
	if hugePages(podLimits(pod)) != nil {
		// A container that requested no huge pages gets none.
		out.HugepageLimits = hugePages(limits)
		if out.HugepageLimits == nil {
			out.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "2MB"}}
		}
	}
	return out
}

// SandboxResources sizes the VM. The CPU limit is set only if every container has one, or the pod. The memory is the
// stated need.
func SandboxResources(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	limits := podLimits(pod)
	out := linuxResources(limits, podRequests(pod))
	if !bounded(pod, corev1.ResourceCPU) {
		out.CpuQuota = 0
	}
	out.MemoryLimitInBytes = stated(pod)
	out.HugepageLimits = hugePages(limits)
	return out
}

// SandboxOverhead returns the overhead of the pod's specification.
func SandboxOverhead(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	if len(pod.Spec.Overhead) == 0 {
		return nil
	}
	return linuxResources(pod.Spec.Overhead, pod.Spec.Overhead)
}

func linuxResources(limits, requests corev1.ResourceList) *runtimeapi.LinuxContainerResources {
	out := &runtimeapi.LinuxContainerResources{CpuPeriod: cpuPeriod, CpuShares: minShares}
	if milli := milliCPU(requests); milli > 0 {
		out.CpuShares = min(max(milli*1024/1000, minShares), maxShares)
	}
	if milli := milliCPU(limits); milli > 0 {
		out.CpuQuota = max(milli*cpuPeriod/1000, minQuota)
	}
	if memory, set := limits[corev1.ResourceMemory]; set {
		out.MemoryLimitInBytes = memory.Value()
	}
	return out
}

// hugePages returns the limits of huge pages, nil for none, with page sizes named as in the kernel's cgroups.
func hugePages(limits corev1.ResourceList) []*runtimeapi.HugepageLimit {
	var out []*runtimeapi.HugepageLimit
	for name, quantity := range limits {
		size, found := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !found || quantity.IsZero() {
			continue
		}
		out = append(out, &runtimeapi.HugepageLimit{PageSize: strings.Replace(size, "i", "B", 1), Limit: uint64(quantity.Value())})
	}
	slices.SortFunc(out, func(a, b *runtimeapi.HugepageLimit) int { return cmp.Compare(a.PageSize, b.PageSize) })
	return out
}

func milliCPU(list corev1.ResourceList) int64 {
	quantity, set := list[corev1.ResourceCPU]
	if !set {
		return 0
	}
	return quantity.MilliValue()
}

// oomScore returns the OOM score of a container, by the kubelet's rules for the containers of a node. A larger request
// for memory makes a kill less likely. A sidecar is killed no sooner than the containers that it serves.
func oomScore(pod *corev1.Pod, container *corev1.Container) int64 {
	switch podspec.QOS(pod) {
	case corev1.PodQOSGuaranteed:
		return -997
	case corev1.PodQOSBestEffort:
		return 1000
	}
	total := podRequests(pod)[corev1.ResourceMemory]
	score := func(c *corev1.Container) int64 {
		if total.IsZero() {
			return 999
		}
		own := podspec.Requests(c.Resources)[corev1.ResourceMemory]
		return min(max(1000-int64(1000*share(own, total)), 3), 999)
	}
	out := score(container)
	if podspec.InitKind(container) == podspec.Sidecar {
		for i := range pod.Spec.Containers {
			out = min(out, score(&pod.Spec.Containers[i]))
		}
	}
	return out
}

func share(own, total resource.Quantity) float64 {
	return own.AsApproximateFloat64() / total.AsApproximateFloat64()
}
