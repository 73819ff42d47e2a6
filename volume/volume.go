// Package volume materialises the volumes of a pod that are made of files that
// somebody else says: configMap, secret, downwardAPI and projected. They are
// written on the host, where a kubelet writes them and as it does:
//
//	DIR/kubernetes.io~configmap/NAME/{..data,KEY,…}
//	DIR/kubernetes.io~secret/NAME/…
//	DIR/kubernetes.io~downward-api/NAME/…
//	DIR/kubernetes.io~projected/NAME/…
//
// and an engine of the CRI takes them from there. A change is published by the
// rename of ..data (package atomicdir), which the engine may watch for.
package volume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// Objects are the ConfigMaps and Secrets that a pod may refer to: those of its
// namespace. Its methods may be called at once.
type Objects interface {
	// ConfigMap and Secret return an object that must not be changed. One that
	// is not there is an error that matches ErrNotFound.
	ConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, name string) (*corev1.Secret, error)
	// Changed is closed at the next change of any of them. Ask for it before
	// the objects, so that no change is missed.
	Changed() <-chan struct{}
}

// Tokens is what Objects can do beside where there is an API server.
type Tokens interface {
	// Token returns a token of the pod's service account that is valid for a while. When another
	// is to take its place, Objects.Changed is closed.
	Token(ctx context.Context, source *corev1.ServiceAccountTokenProjection) ([]byte, error)
}

// ErrNotFound is matched where there is no such object. The error's text is the
// kubelet's.
var ErrNotFound = errors.New("not found")

// NotFound is the error of an object that is not there; kind is "configmap" or
// "secret".
func NotFound(kind, name string) error { return fmt.Errorf("%s %q %w", kind, name, ErrNotFound) }

// None are no objects at all.
type None struct{}

// ConfigMap fails.
func (None) ConfigMap(_ context.Context, name string) (*corev1.ConfigMap, error) {
	return nil, NotFound("configmap", name)
}

// Secret fails.
func (None) Secret(_ context.Context, name string) (*corev1.Secret, error) {
	return nil, NotFound("secret", name)
}

// Changed is never closed.
func (None) Changed() <-chan struct{} { return nil }

// Plugin is the name of the directory of a volume's kind, empty for a volume
// that is not of files.
func Plugin(source *corev1.VolumeSource) string {
	switch {
	case source.ConfigMap != nil:
		return layout.ConfigMap
	case source.Secret != nil:
		return layout.Secret
	case source.DownwardAPI != nil:
		return layout.DownwardAPI
	case source.Projected != nil:
		return layout.Projected
	}
	return ""
}
