package manager

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// objectsFile holds the ConfigMaps and Secrets of a pod, beside its record. It has mode 0600, and no command shows it.
const objectsFile = "objects.json"

// Objects are the ConfigMaps and Secrets of a pod's namespace.
type Objects struct {
	ConfigMaps []*corev1.ConfigMap `json:"configMaps,omitempty"`
	Secrets    []*corev1.Secret    `json:"secrets,omitempty"`
}

// Empty reports whether there are none.
func (o Objects) Empty() bool { return len(o.ConfigMaps)+len(o.Secrets) == 0 }

// Of returns the objects of a namespace.
func (o Objects) Of(namespace string) (out Objects) {
	for _, object := range o.ConfigMaps {
		if object.Namespace == namespace {
			out.ConfigMaps = append(out.ConfigMaps, object)
		}
	}
	for _, object := range o.Secrets {
		if object.Namespace == namespace {
			out.Secrets = append(out.Secrets, object)
		}
	}
	return out
}

// readObjects reads back the pod's objects.
func (p *Pod) readObjects() error {
	var given Objects
	err := atomicfile.ReadJSON(filepath.Join(p.dir, objectsFile), &given)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, atomicfile.ErrCorrupt) {
		// The pod runs anyway, and steps that need a missing object report it.
		p.m.o.Logger.Error("a pod's objects cannot be read", "pod", p.Key(), "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the objects of pod %s: %w", p.Key(), err)
	}
	return p.objects.Apply(given.ConfigMaps, given.Secrets)
}

// Objects returns the pod's objects in their newest versions.
func (p *Pod) Objects() (o Objects) {
	o.ConfigMaps, o.Secrets = p.objects.All()
	return o
}

// PutObjects adds or updates objects of the pod, and notifies their users in the pod. For invalid objects the error is
// errdefs.ErrInvalidArgument.
func (p *Pod) PutObjects(more Objects) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.objects.Apply(more.ConfigMaps, more.Secrets); err != nil {
		return errclass.With(errdefs.ErrInvalidArgument, err)
	}
	path := filepath.Join(p.dir, objectsFile)
	if err := atomicfile.WriteJSON(path, p.Objects(), 0o600, atomicfile.Durable); err != nil {
		return fmt.Errorf("store the objects of pod %s: %w", p.Key(), err)
	}
	return nil
}
