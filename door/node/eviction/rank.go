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

// rank brings pods into the order in which they are evicted: first those that use more than they request, of
// these the ones of the least priority, and of these the one that uses most beyond its request.
func rank(s Signal, pods []*corev1.Pod, usage map[types.UID]Usage) {
	beyond := map[types.UID]int64{}
	for _, pod := range pods {
		u, told := usage[pod.UID]
		if !told || u.Silent {
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

// mostMemory is what a pod that does not say what it uses may use: a guest that is silent, for want of memory or to be
// spared, is not one that uses nothing. That of a container without a limit is more than any other pod's.
func mostMemory(pod *corev1.Pod) uint64 {
	for c, kind := range podspec.All(&pod.Spec) {
		if limit := c.Resources.Limits[corev1.ResourceMemory]; limit.IsZero() && kind != podspec.Initial {
			return math.MaxInt64
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	return uint64(limits.Memory().Value())
}

// Priority is a pod's, 0 for one that has none.
func Priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// beyondRequest is by how much a pod uses more than it requests. Processes are not requested.
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

// vmMemory is what a VM and its shim take of the host's memory beyond what the containers may: 99 MiB were measured for a
// clone under load (engine/group).
const vmMemory = 100 << 20

// vmDisk is what a VM takes of the host's disk before its containers have written: 100 KiB were measured, and the tables of its
// file system grow.
const vmDisk = 1 << 20

// disk is what a pod has of the disk.
func disk(u Usage) int64 {
	if u.HeldDisk > 0 {
		return max(0, u.HeldDisk-vmDisk)
	}
	return int64(u.Disk)
}

// overhead is what of the memory that the host counts for a pod is no use of the pod's own: nothing where its overhead is
// declared, which is then among what it requests.
func overhead(pod *corev1.Pod) int64 {
	if declared := pod.Spec.Overhead[corev1.ResourceMemory]; !declared.IsZero() {
		return 0
	}
	return vmMemory
}

// message is why a pod is evicted, in a kubelet's words.
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
