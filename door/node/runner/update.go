package runner

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Update implements pods.Runner. Conditions that others have set count for the pod's readiness
// from now on.
func (r *Runner) Update(_ context.Context, p *corev1.Pod) error {
	if supervised := r.Get(p.UID); supervised != nil && len(p.Spec.ReadinessGates) > 0 {
		supervised.Changed()
	}
	return nil
}
