package runner

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// Update implements control.Runner. It applies the pod's changes and starts added ephemeral containers. Conditions set by
// other clients count for the pod's readiness from now on. The error matches control.ErrWaits if the node has no room yet
// for a resize.
func (r *Runner) Update(ctx context.Context, p *corev1.Pod) error {
	supervised := r.Get(p.UID)
	if supervised == nil {
		return nil
	}
	if len(p.Spec.ReadinessGates) > 0 {
		supervised.Changed()
	}
	if len(p.Spec.EphemeralContainers) > 0 && !supervised.HasEnded() {
		r.o.Objects.Refer(p)
		r.debug(ctx, supervised, p.Spec.EphemeralContainers)
	}
	resize := &supervised.Door().(*door).resize
	resize.Lock()
	defer resize.Unlock()
	refused := r.refuses(supervised, p)
	if err := supervised.Update(p, refused); err != nil {
		return err
	}
	if refused != nil && refused.Reason == corev1.PodReasonDeferred {
		return fmt.Errorf("resize pod %s: %w: %s", supervised.Key(), control.ErrWaits, refused.Message)
	}
	return nil
}

// refuses grants a pod its new resources, or returns why not. It does not retry an infeasible resize until the pod's
// generation changes. It is called with the door's resize lock held.
func (r *Runner) refuses(supervised *manager.Pod, p *corev1.Pod) *podstatus.Condition {
	if r.o.Resources == nil || supervised.HasEnded() {
		return nil
	}
	for _, c := range supervised.Status().Conditions {
		if c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible && c.ObservedGeneration >= p.Generation {
			return &podstatus.Condition{Status: c.Status, Reason: c.Reason, Message: c.Message}
		}
	}
	if reason, message := r.o.Resources.Resize(p); reason != "" {
		return &podstatus.Condition{Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	return nil
}

// resized sets a pod's reserved resources after a resize.
func (r *Runner) resized(p *manager.Pod) {
	if r.o.Resources == nil {
		return
	}
	d := p.Door().(*door)
	d.resize.Lock()
	defer d.resize.Unlock()
	r.o.Resources.Hold(p.Spec())
}

// Reserve calls take with each pod that was taken over and has not ended.
func (r *Runner) Reserve(take func(*corev1.Pod)) {
	for _, p := range r.manager.All() {
		if !p.HasEnded() {
			d := p.Door().(*door)
			d.resize.Lock() // a running resize may end at any moment
			take(p.Spec())
			d.resize.Unlock()
		}
	}
}

// debug starts new ephemeral containers in the background, because their images may have to be pulled. The pod itself
// retries failures.
func (r *Runner) debug(ctx context.Context, p *manager.Pod, list []corev1.EphemeralContainer) {
	for _, added := range list {
		known := slices.ContainsFunc(p.Spec().Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == added.Name })
		if known {
			continue
		}
		r.beside.Go(func() {
			if err := p.Debug(ctx, added, runtimev1.Size{}); err != nil {
				r.o.Logger.Info("an ephemeral container is not running yet", "pod", p.Key(), "container", added.Name, "error", err)
			}
		})
	}
}
