package config

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// aggregate returns the pod's largest need at any time, where pick returns the need of one container. It is the sum of
// the containers and sidecars, or an init container with the sidecars that started before it, whichever is more.
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

// podRequests and podLimits return the pod's sums, overridden by the values of the pod itself.
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

// ownLimit reports whether the pod itself has a limit with that name.
func ownLimit(pod *corev1.Pod, name corev1.ResourceName) bool {
	if pod.Spec.Resources == nil {
		return false
	}
	limit, set := pod.Spec.Resources.Limits[name]
	return set && !limit.IsZero()
}

// bounded reports whether every container, or the pod, has a limit for name.
func bounded(pod *corev1.Pod, name corev1.ResourceName) bool {
	if ownLimit(pod, name) {
		return true
	}
	return !podspec.Any(&pod.Spec, func(c *corev1.Container) bool {
		limit, set := c.Resources.Limits[name]
		return !set || limit.IsZero()
	})
}

// stated returns the memory that the pod says it needs, with limits before requests.
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
