package pod

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// Errors that Debug's errors match with errors.Is.
var (
	errTarget = errdefs.ErrNotFound.WithMessage("no such target container")
	errEnded  = errdefs.ErrConflict.WithMessage("the pod has ended")
)

// Debug adds an ephemeral container to a running pod. spec must be defaulted and validated. size is the initial size of
// its terminal. Debug returns when the container has started or ended, or with the error of the first attempt to start
// it. Later attempts go on until the pod ends. A Run that returns early forgets the container; the caller of the next
// one adds it to Options.Pod.
func (p *Pod) Debug(ctx context.Context, spec corev1.EphemeralContainer, size runtimev1.Size) error {
	if err := p.CanDebug(spec); err != nil {
		return err
	}
	p.mu.Lock()
	twice := slices.ContainsFunc(p.added, func(c *container) bool { return c.Spec.Name == spec.Name })
	if !twice {
		c := plan.NewEphemeral(&spec)
		c.Size = size
		p.added = append(p.added, c)
	}
	p.mu.Unlock()
	if twice {
		return fmt.Errorf("debug pod %s: container %s %w", p.pod.Name, spec.Name, errdefs.ErrAlreadyExists)
	}
	p.Changed()
	for {
		status, changed := p.Watch()
		one := podstatus.Named(&status, spec.Name)
		waits := one.State.Waiting
		switch {
		case one.State.Running != nil, one.State.Terminated != nil:
			return nil
		case status.Phase == corev1.PodSucceeded, status.Phase == corev1.PodFailed:
			return fmt.Errorf("debug pod %s: container %s: %w", p.pod.Name, spec.Name, errEnded)
		case waits != nil && waits.Reason != ReasonCreating && waits.Reason != reasonInitializing:
			return fmt.Errorf("debug pod %s: container %s: %s: %s", p.pod.Name, spec.Name, waits.Reason, waits.Message)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("debug pod %s: container %s: %w", p.pod.Name, spec.Name, ctx.Err())
		}
	}
}

// CanDebug returns the error with which Debug would reject spec immediately, else nil.
func (p *Pod) CanDebug(spec corev1.EphemeralContainer) error {
	status := p.Status()
	if status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed {
		return fmt.Errorf("debug pod %s: %w", p.pod.Name, errEnded)
	}
	var names []string
	for one := range podstatus.Every(&status) {
		names = append(names, one.Name)
	}
	if slices.Contains(names, spec.Name) {
		return fmt.Errorf("debug pod %s: container %s %w", p.pod.Name, spec.Name, errdefs.ErrAlreadyExists)
	}
	if target := spec.TargetContainerName; target != "" && !slices.Contains(names, target) {
		return fmt.Errorf("debug pod %s: %w %q: it has %v", p.pod.Name, errTarget, target, names)
	}
	return nil
}

// adopt adds the ephemeral containers that Debug has added since the last call.
func (r *run) adopt() {
	r.applyWanted()
	r.p.mu.Lock()
	added := r.p.added[r.adopted:]
	r.adopted += len(added)
	r.p.mu.Unlock()
	r.Containers = append(r.Containers, added...)
}
