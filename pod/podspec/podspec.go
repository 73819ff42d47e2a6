// Package podspec says what the specification of a Pod alone says about its
// containers: of what kind they are, which of them are started again, and what
// quality of service the pod has.
package podspec

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// Kind is what a container is to its pod. It decides when the container is
// started, whether it is started again, and when it is ended.
type Kind int

const (
	// Regular containers are what the pod is for: it lasts as long as one of
	// them has something to do.
	Regular Kind = iota
	// Initial containers run to their end, one after the other, before any
	// regular one.
	Initial
	// Sidecar containers are started among the initial, run beside the regular
	// and are ended after them.
	Sidecar
	// Ephemeral containers are added to a pod that runs, and started once.
	Ephemeral
)

// All are the containers and their kinds, in the order in which they are
// started: those of initContainers, then those of containers. Ephemeral ones
// are not among them. The pointers are into spec.
func All(spec *corev1.PodSpec) iter.Seq2[*corev1.Container, Kind] {
	return func(yield func(*corev1.Container, Kind) bool) {
		for i := range spec.InitContainers {
			if c := &spec.InitContainers[i]; !yield(c, InitKind(c)) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i], Regular) {
				return
			}
		}
	}
}

// Any tells whether one of the containers of All is as is says.
func Any(spec *corev1.PodSpec, is func(*corev1.Container) bool) bool {
	for c := range All(spec) {
		if is(c) {
			return true
		}
	}
	return false
}

// InitKind tells a sidecar from a container that runs to its end, of those of
// initContainers.
func InitKind(c *corev1.Container) Kind {
	if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return Sidecar
	}
	return Initial
}
