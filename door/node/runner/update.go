package runner

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/door/node/pods"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// Update implements pods.Runner: what of the pod has changed is taken over, ephemeral containers that were added are
// started, and conditions that others have set count for the pod's readiness from now on. The error matches
// pods.ErrWaits where the node has no room yet for what the pod asks for now.
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
		return fmt.Errorf("resize pod %s: %w: %s", supervised.Key(), pods.ErrWaits, refused.Message)
	}
	return nil
}

// refuses gives a pod the resources that it asks for now, or tells why it keeps its own. What was infeasible is not
// tried again before something else is asked for. It is called with the door's resize held.
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

// resized has a pod hold what it has after a resize.
func (r *Runner) resized(p *manager.Pod) {
	if r.o.Resources == nil {
		return
	}
	d := p.Door().(*door)
	d.resize.Lock()
	defer d.resize.Unlock()
	r.o.Resources.Hold(p.Spec())
}

// Reserve has take be called with each pod that was taken over and has not ended, as it is asked for.
func (r *Runner) Reserve(take func(*corev1.Pod)) {
	for _, p := range r.manager.All() {
		if !p.HasEnded() {
			d := p.Door().(*door)
			d.resize.Lock() // a resize that was under way may be over just now
			take(p.Spec())
			d.resize.Unlock()
		}
	}
}

// debug starts those ephemeral containers of a pod that it does not know yet, beside the caller: an image may
// have to be pulled. The pod tries by itself again what fails.
func (r *Runner) debug(ctx context.Context, p *manager.Pod, list []corev1.EphemeralContainer) {
	for _, added := range list {
		known := slices.ContainsFunc(p.Spec().Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == added.Name })
		if known {
			continue
		}
		r.beside.Go(func() {
			if err := p.Debug(ctx, added, runtimev1.Size{}); err != nil {
				r.o.Logger.Info("an ephemeral container does not run yet", "pod", p.Key(), "container", added.Name, "error", err)
			}
		})
	}
}
