package run

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
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

// statusOfContainer is what a pod's status says of a container of any kind.
func statusOfContainer(status corev1.PodStatus, name string) corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for _, c := range list {
			if c.Name == name {
				return c
			}
		}
	}
	return corev1.ContainerStatus{}
}

// container finds a container that commands are sent to: its name and the id of
// its newest instance.
func (e *entry) container(ref string) (name, id string, err error) {
	if cause, yes := e.rec.damaged(); yes {
		return "", "", class(api.ErrConflict, fmt.Errorf("pod %s: %s", e.key(), cause))
	}
	if name, err = findContainer(e.spec(), ref); err != nil {
		return "", "", err
	}
	id, ok := e.pod().Container(name)
	if !ok {
		return "", "", class(api.ErrConflict, fmt.Errorf("container %s of pod %s has not been started (bulkhead events %s tells why)", name, e.key(), e.rec.Pod.Name))
	}
	return name, id, nil
}

// orPaused is why a paused pod does nothing, in place of how that was noticed.
func (e *entry) orPaused(err error) error {
	if _, paused := e.r.s.engine.PodPauses(e.pod().Sandbox()); paused {
		return class(api.ErrConflict, fmt.Errorf("pod %s is paused: bulkhead resume %s lets it go on", e.key(), e.rec.Pod.Name))
	}
	return err
}
