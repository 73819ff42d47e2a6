package runner

import (
	corev1 "k8s.io/api/core/v1"
)

// Active are the pods that have not ended, as they are now. One that somebody is ending is among them: its grace may be
// long, and Stop and Condemn shorten it.
func (r *Runner) Active() (all []*corev1.Pod) {
	for _, p := range r.manager.All() {
		if !p.HasEnded() {
			all = append(all, p.Spec())
		}
	}
	return all
}

// Uncondemned are those of the Active that Condemn has not been called for.
func (r *Runner) Uncondemned() (all []*corev1.Pod) {
	for _, p := range r.manager.All() {
		if !p.HasEnded() && p.Verdict() == nil {
			all = append(all, p.Spec())
		}
	}
	return all
}
