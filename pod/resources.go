package pod

import (
	"cmp"
	"slices"
	"strings"

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

// containerResources are a container's limits as the CRI has them. Where it has
// none of its own it has its pod's.
func containerResources(pod *corev1.Pod, container *corev1.Container) *runtimeapi.LinuxContainerResources {
	limits := corev1.ResourceList{}
	if own := pod.Spec.Resources; own != nil {
		addAll(limits, own.Limits)
	}
	for name, quantity := range container.Resources.Limits {
		if !quantity.IsZero() {
			limits[name] = quantity
		}
	}
	out := linuxResources(limits, effectiveRequests(container.Resources))
	out.OomScoreAdj = oomScore(pod, container)
	if hugePages(podLimits(pod)) != nil {
		// Who asked for none gets none of the others'.
		out.HugepageLimits = hugePages(limits)
		if out.HugepageLimits == nil {
			out.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "2MB"}}
		}
	}
	return out
}

// sandboxResources size the machine: the CPUs that nothing in the pod may use
// more than, if there is such a bound, and the memory that it says it needs.
func sandboxResources(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	limits := podLimits(pod)
	out := linuxResources(limits, podRequests(pod))
	if !bounded(pod, corev1.ResourceCPU) {
		out.CpuQuota = 0
	}
	out.MemoryLimitInBytes = stated(pod)
	out.HugepageLimits = hugePages(limits)
	return out
}

// sandboxOverhead is what the pod says that its machine costs beside it.
func sandboxOverhead(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	if len(pod.Spec.Overhead) == 0 {
		return nil
	}
	return linuxResources(pod.Spec.Overhead, pod.Spec.Overhead)
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

// hugePages are the limits of huge pages, nil for none, by the names that the
// kernel's cgroups have for the sizes.
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

// qosClass is the pod's quality of service: Guaranteed when CPU and memory are
// limited and requested alike, in every container or by the pod itself,
// BestEffort when none asks for anything, else Burstable.
func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	all := []corev1.ResourceRequirements{}
	if own := pod.Spec.Resources; own != nil && len(own.Limits)+len(own.Requests) > 0 {
		all = append(all, *own)
	} else {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				all = append(all, list[i].Resources)
			}
		}
	}
	guaranteed, best := true, true
	for _, r := range all {
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
// memory goes later, a sidecar no sooner than the containers that it serves.
func oomScore(pod *corev1.Pod, container *corev1.Container) int64 {
	switch qosClass(pod) {
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
		own := effectiveRequests(c.Resources)[corev1.ResourceMemory]
		return min(max(1000-int64(1000*share(own, total)), 3), 999)
	}
	out := score(container)
	if isSidecar(container) {
		for i := range pod.Spec.Containers {
			out = min(out, score(&pod.Spec.Containers[i]))
		}
	}
	return out
}

func share(own, total resource.Quantity) float64 {
	return own.AsApproximateFloat64() / total.AsApproximateFloat64()
}
