package runner

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Status returns the status of a pod. It returns false if the pod does not exist, or if the runtime has not yet
// reported the pod's state. Options.Changed is called when it has.
func (r *Runner) Status(uid types.UID) (corev1.PodStatus, bool) {
	p := r.Get(uid)
	if p == nil || !p.Observed() {
		return corev1.PodStatus{}, false
	}
	return p.Status(), true
}

// Statuses returns the known statuses of all pods.
func (r *Runner) Statuses() map[types.UID]corev1.PodStatus {
	all := map[types.UID]corev1.PodStatus{}
	for _, p := range r.Pods() {
		if status, found := r.Status(p.UID()); found {
			all[p.UID()] = status
		}
	}
	return all
}
