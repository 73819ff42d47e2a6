package podspec

import corev1 "k8s.io/api/core/v1"

// QOS returns the pod's quality of service. It is Guaranteed if limits and requests of CPU and memory are set and
// equal, in every container or for the pod itself. It is BestEffort if none are set, else Burstable.
func QOS(pod *corev1.Pod) corev1.PodQOSClass {
	all := []corev1.ResourceRequirements{}
	if own := pod.Spec.Resources; own != nil && len(own.Limits)+len(own.Requests) > 0 {
		all = append(all, *own)
	} else {
		for container := range All(&pod.Spec) {
			all = append(all, container.Resources)
		}
	}
	guaranteed, best := true, true
	for _, r := range all {
		requests := Requests(r)
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

// Requests returns the requests, or the limits of resources without a request.
func Requests(r corev1.ResourceRequirements) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name, quantity := range list {
			out[name] = quantity
		}
	}
	return out
}
