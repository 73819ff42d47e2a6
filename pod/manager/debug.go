package manager

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod"
)

// Debug adds an ephemeral container, defaulted and validated, to a pod that runs,
// and returns when it has been started. Its errors are those of pod.Pod's Debug. The
// container is written down before it is made: the next manager has to know it.
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

// note writes an ephemeral container down, whose name is one of a kind: the pod
// does not know yet of one that another request has just written down.
func (p *Pod) note(spec corev1.EphemeralContainer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.rec.Ephemeral
	if slices.ContainsFunc(before, func(other corev1.EphemeralContainer) bool { return other.Name == spec.Name }) {
		return fmt.Errorf("container %s %w", spec.Name, pod.ErrName)
	}
	p.rec.Ephemeral = append(before[:len(before):len(before)], spec)
	if err := p.save(); err != nil {
		p.rec.Ephemeral = before
		return err
	}
	return nil
}
