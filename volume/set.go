package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Set is an implementation of Objects in memory. The zero value is empty and ready for use.
type Set struct {
	mu         sync.Mutex
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	changed    chan struct{}
}

var _ Objects = (*Set)(nil)

// ErrImmutable is matched by errors for changes of an immutable object.
var ErrImmutable = errors.New("the object is immutable")

// Apply adds objects, or replaces those with the same name. If an error matches ErrImmutable, none is changed. The caller
// must not change the objects afterwards.
func (s *Set) Apply(configMaps []*corev1.ConfigMap, secrets []*corev1.Secret) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, next := range configMaps {
		old := s.configMaps[next.Name]
		if old != nil && isTrue(old.Immutable) &&
			(!isTrue(next.Immutable) || !reflect.DeepEqual(old.Data, next.Data) || !reflect.DeepEqual(old.BinaryData, next.BinaryData)) {
			return fmt.Errorf("configmap %q: %w", next.Name, ErrImmutable)
		}
	}
	for _, next := range secrets {
		old := s.secrets[next.Name]
		if old != nil && isTrue(old.Immutable) && (!isTrue(next.Immutable) || !reflect.DeepEqual(old.Data, next.Data)) {
			return fmt.Errorf("secret %q: %w", next.Name, ErrImmutable)
		}
	}
	if s.configMaps == nil {
		s.configMaps, s.secrets = map[string]*corev1.ConfigMap{}, map[string]*corev1.Secret{}
	}
	for _, next := range configMaps {
		s.configMaps[next.Name] = next
	}
	for _, next := range secrets {
		s.secrets[next.Name] = next
	}
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return nil
}

// All returns the objects, ordered by name.
func (s *Set) All() (configMaps []*corev1.ConfigMap, secrets []*corev1.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.configMaps)) {
		configMaps = append(configMaps, s.configMaps[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.secrets)) {
		secrets = append(secrets, s.secrets[name])
	}
	return configMaps, secrets
}

func isTrue(value *bool) bool { return value != nil && *value }

// ConfigMap implements Objects.
func (s *Set) ConfigMap(_ context.Context, name string) (*corev1.ConfigMap, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object := s.configMaps[name]; object != nil {
		return object, nil
	}
	return nil, NotFound("configmap", name)
}

// Secret implements Objects.
func (s *Set) Secret(_ context.Context, name string) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object := s.secrets[name]; object != nil {
		return object, nil
	}
	return nil, NotFound("secret", name)
}

// Changed implements Objects.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}
