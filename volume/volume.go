// Package volume writes the volumes of a pod with content from elsewhere: configMap, secret, downwardAPI and projected.
// It writes them on the host, in a kubelet's layout:
//
//	DIR/kubernetes.io~configmap/NAME/{..data,KEY,…}
//	DIR/kubernetes.io~secret/NAME/…
//	DIR/kubernetes.io~downward-api/NAME/…
//	DIR/kubernetes.io~projected/NAME/…
//
// A CRI engine reads them from there. A change is published by the rename of ..data (package atomicdir), which the
// engine may watch.
package volume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// Objects are the ConfigMaps and Secrets of a pod's namespace. Implementations are safe for concurrent use.
type Objects interface {
	// ConfigMap and Secret return an object that must not be changed. For a missing object the error matches
	// ErrNotFound.
	ConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, name string) (*corev1.Secret, error)
	// Changed returns a channel that is closed at the next change of any object. Call it before ConfigMap and Secret,
	// so that no change is missed.
	Changed() <-chan struct{}
}

// Tokens is an additional interface of Objects that come from an API server.
type Tokens interface {
	// Token returns a token of the pod's service account, valid for a limited time. Objects.Changed is closed when a
	// new one is needed.
	Token(ctx context.Context, source *corev1.ServiceAccountTokenProjection) ([]byte, error)
}

// ErrNotFound is matched by errors for missing objects. The error's text is the kubelet's.
var ErrNotFound = errors.New("not found")

// NotFound returns the error for a missing object; kind is "configmap" or "secret".
func NotFound(kind, name string) error { return fmt.Errorf("%s %q %w", kind, name, ErrNotFound) }

// None is an empty set of objects.
type None struct{}

// ConfigMap returns NotFound.
func (None) ConfigMap(_ context.Context, name string) (*corev1.ConfigMap, error) {
	return nil, NotFound("configmap", name)
}

// Secret returns NotFound.
func (None) Secret(_ context.Context, name string) (*corev1.Secret, error) {
	return nil, NotFound("secret", name)
}

// Changed returns nil.
func (None) Changed() <-chan struct{} { return nil }

// Plugin returns the directory name of a volume's kind, empty for a volume without files.
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
