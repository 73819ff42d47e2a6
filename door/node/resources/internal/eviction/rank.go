package eviction

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// rank sorts pods into the order of eviction: first pods that use more than they request, then by ascending priority,
// then by the usage beyond the request.
func rank(s Signal, pods []*corev1.Pod, usage map[types.UID]Usage) {
	beyond := map[types.UID]int64{}
	for _, pod := range pods {
		u, known := usage[pod.UID]
		if !known || u.Silent {
			u.Memory = mostMemory(pod)
		}
		beyond[pod.UID] = beyondRequest(s, pod, u)
	}
	exceeds := func(uid types.UID) int {
		if s != PIDAvailable && beyond[uid] > 0 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(exceeds(a.UID), exceeds(b.UID)), cmp.Compare(Priority(a), Priority(b)),
			cmp.Compare(beyond[b.UID], beyond[a.UID]))
	})
}

// mostMemory returns the most memory that a pod without a report may use, because a silent guest may be out of memory
// or avoid its eviction. Without a limit, that is more than any other pod's usage.
func mostMemory(pod *corev1.Pod) uint64 {
	for c, kind := range podspec.All(&pod.Spec) {
		if limit := c.Resources.Limits[corev1.ResourceMemory]; limit.IsZero() && kind != podspec.Initial {
			return math.MaxInt64
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	return uint64(limits.Memory().Value())
}

// Priority returns a pod's priority, or 0.
func Priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// beyondRequest returns by how much a pod's usage exceeds its request. Processes have no request.
func beyondRequest(s Signal, pod *corev1.Pod, u Usage) int64 {
	name := of[s].resource
	request := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[name]
	switch name {
	case corev1.ResourceMemory:
		if u.Held > 0 {
			return u.Held - overhead(pod) - request.Value()
		}
		return int64(u.Memory) - request.Value()
	case corev1.ResourceEphemeralStorage:
		return disk(u) - request.Value()
	case "inodes":
		return disk(u)
	}
	return int64(u.Processes)
}

// vmMemory is the host memory of a VM and its shim beyond that of the containers. A measurement gave 99 MiB for a clone
// under load (engine/group).
const vmMemory = 100 << 20

// vmDisk is the host disk of a VM before its containers write. A measurement gave 100 KiB; the tables of its file
// system grow.
const vmDisk = 1 << 20

// disk returns a pod's usage of the disk.
func disk(u Usage) int64 {
	if u.HeldDisk > 0 {
		return max(0, u.HeldDisk-vmDisk)
	}
	return int64(u.Disk)
}

// overhead returns the host memory that is not the pod's own usage. It is 0 if the pod declares its overhead, which is
// then part of its request.
func overhead(pod *corev1.Pod) int64 {
	if declared := pod.Spec.Overhead[corev1.ResourceMemory]; !declared.IsZero() {
		return 0
	}
	return vmMemory
}

// message returns the reason for an eviction in a kubelet's words.
func message(low Threshold, host Host, pod *corev1.Pod, u Usage) string {
	name := of[low.Signal].resource
	all, left := host.level(low.Signal)
	quantity := func(n uint64) *resource.Quantity { return resource.NewQuantity(int64(n), resource.BinarySI) }
	text := fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %s, available: %s. ",
		name, quantity(low.least(all)), quantity(left))
	if name != corev1.ResourceEphemeralStorage {
		return text
	}
	for c := range podspec.All(&pod.Spec) {
		request := c.Resources.Requests[name]
		if used := u.Written[c.Name]; int64(used) > request.Value() {
			text += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %s. ", c.Name, quantity(used), &request, name)
		}
	}
	return text
}
