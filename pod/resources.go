package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	cpuPeriod = 100_000 // microseconds
	minQuota  = 1_000   // microseconds
	minShares = 2
	maxShares = 262_144
)

// containerResources are a container's limits as the CRI has them.
func containerResources(pod *corev1.Pod, container *corev1.Container) *runtimeapi.LinuxContainerResources {
	out := linuxResources(container.Resources)
	out.OomScoreAdj = oomScore(pod, container)
	return out
}

// sandboxResources are the sums over the containers, which size the machine.
func sandboxResources(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	sum := corev1.ResourceRequirements{Limits: corev1.ResourceList{}, Requests: corev1.ResourceList{}}
	for i := range pod.Spec.Containers {
		requirements := pod.Spec.Containers[i].Resources
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			add(sum.Limits, name, requirements.Limits)
			add(sum.Requests, name, effectiveRequests(requirements))
		}
	}
	return linuxResources(sum)
}

func add(sum corev1.ResourceList, name corev1.ResourceName, from corev1.ResourceList) {
	if quantity, set := from[name]; set {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// effectiveRequests are the requests, where absent the limits.
func effectiveRequests(r corev1.ResourceRequirements) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name, quantity := range list {
			out[name] = quantity
		}
	}
	return out
}

func linuxResources(r corev1.ResourceRequirements) *runtimeapi.LinuxContainerResources {
	out := &runtimeapi.LinuxContainerResources{CpuPeriod: cpuPeriod, CpuShares: minShares}
	requests := effectiveRequests(r)
	if milli := milliCPU(requests); milli > 0 {
		out.CpuShares = min(max(milli*1024/1000, minShares), maxShares)
	}
	if milli := milliCPU(r.Limits); milli > 0 {
		out.CpuQuota = max(milli*cpuPeriod/1000, minQuota)
	}
	if memory, set := r.Limits[corev1.ResourceMemory]; set {
		out.MemoryLimitInBytes = memory.Value()
	}
	return out
}

func milliCPU(list corev1.ResourceList) int64 {
	quantity, set := list[corev1.ResourceCPU]
	if !set {
		return 0
	}
	return quantity.MilliValue()
}

// qosClass is the pod's quality of service: Guaranteed when every container's
// CPU and memory are limited and requested alike, BestEffort when none asks for
// anything, else Burstable.
func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	guaranteed, best := true, true
	for i := range pod.Spec.Containers {
		r := pod.Spec.Containers[i].Resources
		requests := effectiveRequests(r)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := r.Limits[name]
			request := requests[name]
			if limited && !limit.IsZero() || !request.IsZero() {
				best = false
			}
			if !limited || limit.IsZero() || request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case best:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// oomScore orders the containers of a machine for the out-of-memory killer as
// the kubelet orders those of a node: who asked for a larger share of the pod's
// memory goes later.
func oomScore(pod *corev1.Pod, container *corev1.Container) int64 {
	switch qosClass(pod) {
	case corev1.PodQOSGuaranteed:
		return -997
	case corev1.PodQOSBestEffort:
		return 1000
	}
	var total resource.Quantity
	for i := range pod.Spec.Containers {
		total.Add(effectiveRequests(pod.Spec.Containers[i].Resources)[corev1.ResourceMemory])
	}
	if total.IsZero() {
		return 999
	}
	own := effectiveRequests(container.Resources)[corev1.ResourceMemory]
	return min(max(1000-int64(1000*own.AsApproximateFloat64()/total.AsApproximateFloat64()), 3), 999)
}
