// Package refs finds the pods and containers that commands name.
package refs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/calls"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// defaultContainer is kubectl's annotation with the name of the container that commands use if none is named.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// Containers returns the names of all containers of a pod in their start order. Ephemeral containers come last.
func Containers(p *corev1.Pod) []string {
	var names []string
	for c := range podspec.Every(&p.Spec) {
		names = append(names, c.Name)
	}
	return names
}

// ContainerName finds a container by its name or an unambiguous prefix. An empty ref means the pod's default
// container.
func ContainerName(p *corev1.Pod, ref string) (string, error) {
	names := Containers(p)
	if ref == "" {
		if ref = p.Annotations[defaultContainer]; ref == "" {
			return p.Spec.Containers[0].Name, nil
		}
	}
	var found []string
	for _, name := range names {
		if name == ref {
			return name, nil
		}
		if strings.HasPrefix(name, ref) {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("container %q of pod %s/%s: %w: it has %v", ref, p.Namespace, p.Name, errdefs.ErrNotFound, names)
	}
	return "", fmt.Errorf("container %q of pod %s/%s: %w: it matches %s",
		ref, p.Namespace, p.Name, errclass.ErrAmbiguous, strings.Join(found, " or "))
}

// Container finds a container by ref and returns its name and the id of its newest instance.
func Container(p *manager.Pod, ref string) (name, id string, err error) {
	if err := p.Damaged(); err != nil {
		return "", "", err
	}
	if name, err = ContainerName(p.Spec(), ref); err != nil {
		return "", "", err
	}
	id, ok := p.Container(name)
	if !ok {
		err := fmt.Errorf("container %s of pod %s has not been started (bulkhead events %s shows why)", name, p.Key(), p.Name())
		return "", "", errclass.With(errdefs.ErrConflict, err)
	}
	return name, id, nil
}

// OrPaused replaces err with an explanation if the pod is paused.
func OrPaused(vms *engine.Engine, p *manager.Pod, err error) error {
	if _, paused := vms.Pauses(p.Sandbox()); paused {
		return errclass.New(errdefs.ErrConflict, "pod %s is paused: resume it with bulkhead resume %s", p.Key(), p.Name())
	}
	return err
}

// Find finds a pod to read by its name or a prefix of it.
func Find(pods *manager.Manager, ref string) (*manager.Pod, error) { return found(pods.Find(ref)) }

// FindExact finds a pod to change by its full name.
func FindExact(pods *manager.Manager, ref string) (*manager.Pod, error) {
	return found(pods.FindExact(ref))
}

func found(p *manager.Pod, err error) (*manager.Pod, error) {
	if errors.Is(err, errdefs.ErrNotFound) {
		err = fmt.Errorf("%w: bulkhead ps lists the pods", err)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Call makes a call about a pod that only reads it, or opens a stream to it. Its path names the pod.
func Call(pods *manager.Manager, call func(*http.Request, *manager.Pod) (any, error)) http.HandlerFunc {
	return calls.Answered(func(r *http.Request) (any, error) {
		p, err := Find(pods, r.PathValue("ref"))
		if err != nil {
			return nil, err
		}
		return call(r, p)
	})
}

// CallWith is Call for a call that gets the JSON value of its request.
func CallWith[T any](pods *manager.Manager, call func(*http.Request, *manager.Pod, T) (any, error)) http.HandlerFunc {
	return Call(pods, func(r *http.Request, p *manager.Pod) (any, error) {
		req, err := calls.Decode[T](r)
		if err != nil {
			return nil, err
		}
		return call(r, p, req)
	})
}
