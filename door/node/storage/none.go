package storage

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/volume"
)

// none are the objects of a node without an API server, which are none and never change.
type none struct{}

func (none) Of(*corev1.Pod) (volume.Objects, func()) { return none{}, func() {} }
func (none) Known(*corev1.Pod) bool                  { return true }
func (none) Refer(*corev1.Pod)                       {}
func (none) Forget(types.UID)                        {}
func (none) Changed() <-chan struct{}                { return nil }

func (none) ConfigMap(_ context.Context, name string) (*corev1.ConfigMap, error) {
	return nil, volume.NotFound("configmap", name)
}

func (none) Secret(_ context.Context, name string) (*corev1.Secret, error) {
	return nil, volume.NotFound("secret", name)
}
