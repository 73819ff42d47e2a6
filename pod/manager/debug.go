package manager

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
)

// Debug adds an ephemeral container to a running pod and returns when it has started. The container must be defaulted
// and validated. The errors are those of pod.Pod's Debug. Debug saves the container before it creates it, for the next
// manager.
func (p *Pod) Debug(ctx context.Context, spec corev1.EphemeralContainer, size runtimev1.Size) error {
	supervised := p.supervised()
	if err := supervised.CanDebug(spec); err != nil {
		return err
	}
	if err := p.note(spec); err != nil {
		return fmt.Errorf("debug pod %s: %w", p.Key(), err)
	}
	return supervised.Debug(ctx, spec, size)
}

// note saves an ephemeral container. It checks the name again, because the pod does not know containers that another
// request has just saved.
func (p *Pod) note(spec corev1.EphemeralContainer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.rec.Ephemeral
	if slices.ContainsFunc(before, func(other corev1.EphemeralContainer) bool { return other.Name == spec.Name }) {
		return fmt.Errorf("container %s %w", spec.Name, errdefs.ErrAlreadyExists)
	}
	p.rec.Ephemeral = append(before[:len(before):len(before)], spec)
	if err := p.save(); err != nil {
		p.rec.Ephemeral = before
		return err
	}
	return nil
}
