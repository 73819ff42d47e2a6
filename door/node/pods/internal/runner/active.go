package runner

import (
	corev1 "k8s.io/api/core/v1"
)

// Active returns the pods that have not ended. It includes pods that are being ended: their grace may be long, and Stop
// and Evict can shorten it.
func (r *Runner) Active() (all []*corev1.Pod) {
	for _, p := range r.manager.All() {
		if !p.HasEnded() {
			all = append(all, p.Spec())
		}
	}
	return all
}

// Unevicted returns the Active pods for which Evict was not called.
func (r *Runner) Unevicted() (all []*corev1.Pod) {
	for _, p := range r.manager.All() {
		if !p.HasEnded() && p.Eviction() == nil {
			all = append(all, p.Spec())
		}
	}
	return all
}
