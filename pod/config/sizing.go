package config

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// aggregate is what a pod needs at a time, of what pick tells of each container:
// the containers and sidecars together, or an init container with the sidecars
// that are started before it, whichever is more.
func aggregate(pod *corev1.Pod, pick func(*corev1.Container) corev1.ResourceList) corev1.ResourceList {
	sum, sidecars, before := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for container, kind := range podspec.All(&pod.Spec) {
		own := pick(container)
		switch kind {
		case podspec.Sidecar:
			addAll(sum, own)
			addAll(sidecars, own)
			maxAll(before, sidecars)
		case podspec.Initial:
			step := sidecars.DeepCopy()
			addAll(step, own)
			maxAll(before, step)
		default:
			addAll(sum, own)
		}
	}
	maxAll(sum, before)
	return sum
}

func addAll(sum, list corev1.ResourceList) {
	for name, quantity := range list {
		total := sum[name].DeepCopy()
		total.Add(quantity)
		sum[name] = total
	}
}

func maxAll(most, list corev1.ResourceList) {
	for name, quantity := range list {
		if have, set := most[name]; !set || quantity.Cmp(have) > 0 {
			most[name] = quantity
		}
	}
}

// podRequests and podLimits are the pod's sums, in whose place come those that
// the pod states for itself.
func podRequests(pod *corev1.Pod) corev1.ResourceList {
	sum := aggregate(pod, func(c *corev1.Container) corev1.ResourceList { return podspec.Requests(c.Resources) })
	if own := pod.Spec.Resources; own != nil {
		for name, quantity := range own.Requests {
			sum[name] = quantity
		}
	}
	return sum
}

func podLimits(pod *corev1.Pod) corev1.ResourceList {
	sum := aggregate(pod, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits })
	if own := pod.Spec.Resources; own != nil {
		for name, quantity := range own.Limits {
			sum[name] = quantity
		}
	}
	return sum
}

// ownLimit tells whether the pod itself has a limit of that name.
func ownLimit(pod *corev1.Pod, name corev1.ResourceName) bool {
	if pod.Spec.Resources == nil {
		return false
	}
	limit, set := pod.Spec.Resources.Limits[name]
	return set && !limit.IsZero()
}

// bounded tells whether nothing in the pod may use more of name than a limit.
func bounded(pod *corev1.Pod, name corev1.ResourceName) bool {
	if ownLimit(pod, name) {
		return true
	}
	return !podspec.Any(&pod.Spec, func(c *corev1.Container) bool {
		limit, set := c.Resources.Limits[name]
		return !set || limit.IsZero()
	})
}

// stated is the memory that the pod says it needs: limits before requests.
func stated(pod *corev1.Pod) int64 {
	name := corev1.ResourceMemory
	if ownLimit(pod, name) {
		limit := pod.Spec.Resources.Limits[name]
		return limit.Value()
	}
	sum := aggregate(pod, func(c *corev1.Container) corev1.ResourceList {
		for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
			if quantity, set := list[name]; set {
				return corev1.ResourceList{name: quantity}
			}
		}
		return nil
	})
	if own := pod.Spec.Resources; own != nil {
		maxAll(sum, corev1.ResourceList{name: own.Requests[name]})
	}
	total := sum[name]
	return total.Value()
}
