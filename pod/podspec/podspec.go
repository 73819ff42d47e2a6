// Package podspec derives facts about containers from the specification of a Pod alone: their kinds, their restarts,
// and the pod's quality of service.
package podspec

import (
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind is a container's role in its pod. It decides when the container starts, restarts and ends.
type Kind int

const (
	// Regular containers are the purpose of the pod, which lasts until they are done.
	Regular Kind = iota
	// Initial is the kind of init containers, which run to their end, one after the other, before any regular container.
	Initial
	// Sidecar containers start among the init containers, run beside the regular ones and end after them.
	Sidecar
	// Ephemeral containers are added to a running pod and started once.
	Ephemeral
)

// All is Every without the ephemeral containers.
func All(spec *corev1.PodSpec) iter.Seq2[*corev1.Container, Kind] {
	return func(yield func(*corev1.Container, Kind) bool) {
		for c, kind := range Every(spec) {
			if kind == Ephemeral || !yield(c, kind) {
				return
			}
		}
	}
}

// Every iterates over the containers and their kinds in start order: initContainers, containers, then ephemeral
// containers. The pointers are into spec.
func Every(spec *corev1.PodSpec) iter.Seq2[*corev1.Container, Kind] {
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
		for i := range spec.EphemeralContainers {
			if !yield((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), Ephemeral) {
				return
			}
		}
	}
}

// Find returns the container of Every with that name, nil for none.
func Find(spec *corev1.PodSpec, name string) *corev1.Container {
	for c := range Every(spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Any reports whether is returns true for one of the containers of All.
func Any(spec *corev1.PodSpec, is func(*corev1.Container) bool) bool {
	for c := range All(spec) {
		if is(c) {
			return true
		}
	}
	return false
}

// InitKind returns whether an entry of initContainers is a sidecar or an init container.
func InitKind(c *corev1.Container) Kind {
	if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return Sidecar
	}
	return Initial
}

// Grace returns the pod's own grace period.
func Grace(spec *corev1.PodSpec) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if own := spec.TerminationGracePeriodSeconds; own != nil {
		seconds = *own
	}
	return time.Duration(seconds) * time.Second
}
