package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
)

var _ control.Source = (*static)(nil)

// Subscribe implements control.Source. It records a new pod's name before the pod runs, and updates its mirror afterwards.
func (s *static) Subscribe(changed func(types.UID), gone func(*corev1.Pod)) error {
	return s.source.Subscribe(func(uid types.UID) {
		if p := s.source.Get(uid); p != nil {
			s.recordName(p)
		}
		changed(uid)
		s.updateMirror(uid)
	}, func(p *corev1.Pod) {
		gone(p)
		s.updateMirror(p.UID)
	})
}

// HasSynced implements control.Source.
func (s *static) HasSynced() bool { return s.source.HasSynced() }

// Get implements control.Source.
func (s *static) Get(uid types.UID) *corev1.Pod { return s.source.Get(uid) }

// Live implements control.Source.
func (s *static) Live(ctx context.Context, namespace, name string, uid types.UID) (bool, error) {
	return s.source.Live(ctx, namespace, name, uid)
}

// Delete implements control.Source.
func (s *static) Delete(ctx context.Context, p *corev1.Pod) error { return s.source.Delete(ctx, p) }
