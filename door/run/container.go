package run

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// defaultContainer is the annotation that names the container which commands
// mean when none is named, as kubectl reads it.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// allContainers are the names of a pod's containers of every kind, in the order
// in which they start; ephemeral ones last.
func allContainers(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.InitContainers {
		names = append(names, c.Name)
	}
	names = append(names, containerNames(p)...)
	for _, c := range p.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

// findContainer names one of a pod's containers by its name or an unambiguous
// prefix of it; empty is the pod's default one.
func findContainer(p *corev1.Pod, ref string) (string, error) {
	names := allContainers(p)
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
		return "", fmt.Errorf("container %q of pod %s/%s: %w: it has %v", ref, p.Namespace, p.Name, api.ErrNotFound, names)
	}
	return "", fmt.Errorf("container %q of pod %s/%s: %w: it may be %s", ref, p.Namespace, p.Name, api.ErrAmbiguous, strings.Join(found, " or "))
}

// container finds a container that commands are sent to: its name and the id of
// its newest instance.
func (e *entry) container(ref string) (name, id string, err error) {
	if err := e.Damaged(); err != nil {
		return "", "", err
	}
	if name, err = findContainer(e.Spec(), ref); err != nil {
		return "", "", err
	}
	id, ok := e.Container(name)
	if !ok {
		err := fmt.Errorf("container %s of pod %s has not been started (bulkhead events %s tells why)", name, e.Key(), e.Name())
		return "", "", errclass.With(api.ErrConflict, err)
	}
	return name, id, nil
}

// orPaused is why a paused pod does nothing, in place of how that was noticed.
func (e *entry) orPaused(err error) error {
	if _, paused := e.s.engine.Pauses(e.Sandbox()); paused {
		return errclass.With(api.ErrConflict, fmt.Errorf("pod %s is paused: bulkhead resume %s lets it go on", e.Key(), e.Name()))
	}
	return err
}
