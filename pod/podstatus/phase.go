// Package podstatus derives a pod's phase, conditions and exit code from the statuses of its containers, like the
// kubelet.
package podstatus

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Phase returns the phase that follows from the containers' states, like the kubelet. terminal means that no container
// will start any more.
func Phase(pod *corev1.Pod, status *corev1.PodStatus, terminal bool) corev1.PodPhase {
	if pending, failed := countInits(pod, status); failed {
		return corev1.PodFailed
	} else if pending {
		return corev1.PodPending
	}
	all := tally{before: Restarts(&pod.Spec, status)}
	for c, kind := range podspec.All(&pod.Spec) {
		switch kind {
		case podspec.Sidecar:
			all.sidecar(Named(status, c.Name))
		case podspec.Regular:
			all.regular(pod, c, Named(status, c.Name))
		}
	}
	return all.phase(terminal)
}

// countInits reports whether the regular containers may not start yet, and whether they never will.
func countInits(pod *corev1.Pod, all *corev1.PodStatus) (pending, failed bool) {
	begun, before := AnyStarted(all.ContainerStatuses), Restarts(&pod.Spec, all)
	for spec, kind := range podspec.All(&pod.Spec) {
		status := Named(all, spec.Name)
		switch {
		case kind == podspec.Regular:
		case kind == podspec.Sidecar:
			up := status.State.Running != nil && status.Started != nil && *status.Started
			ended := status.State.Terminated != nil || status.LastTerminationState.Terminated != nil && status.State.Running == nil
			pending = pending || !begun && !up && !ended
		case status.State.Terminated != nil:
			code := status.State.Terminated.ExitCode
			failed = failed || code != 0 && !podspec.Restarts(pod, kind, spec, code, before)
		case status.State.Waiting != nil && status.LastTerminationState.Terminated != nil:
			// It failed and is restarted, or its VM was replaced.
		default:
			pending = true
		}
	}
	return pending, failed
}

// tally counts the states of a pod's containers.
type tally struct {
	running, waiting, unknown, stopped, final, succeeded int

	before int32 // how often containers were restarted
}

// sidecar counts a sidecar; its exit code does not matter.
func (t *tally) sidecar(status corev1.ContainerStatus) {
	switch {
	case status.State.Running != nil:
		t.running++
	case status.State.Terminated != nil, status.LastTerminationState.Terminated != nil:
	case status.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

func (t *tally) regular(pod *corev1.Pod, spec *corev1.Container, status corev1.ContainerStatus) {
	switch end := status.State.Terminated; {
	case status.State.Running != nil:
		t.running++
	case end != nil:
		t.stopped++
		if !podspec.Restarts(pod, podspec.Regular, spec, end.ExitCode, t.before) {
			t.final++
		}
		if end.ExitCode == 0 {
			t.succeeded++
		}
	case status.State.Waiting != nil && status.LastTerminationState.Terminated != nil:
		t.stopped++
	case status.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

func (t *tally) phase(terminal bool) corev1.PodPhase {
	switch {
	case t.waiting > 0, t.unknown > 0:
		return corev1.PodPending // some containers have not been started
	case t.running > 0:
		return corev1.PodRunning
	case t.stopped == 0:
		return corev1.PodPending
	case !terminal && t.final < t.stopped:
		return corev1.PodRunning // about to be restarted
	case t.succeeded == t.stopped:
		return corev1.PodSucceeded
	}
	return corev1.PodFailed
}

// Restarts returns how often the initial and regular containers were restarted.
func Restarts(spec *corev1.PodSpec, status *corev1.PodStatus) (n int32) {
	for c, kind := range podspec.All(spec) {
		if kind != podspec.Sidecar {
			n += Named(status, c.Name).RestartCount
		}
	}
	return n
}

// Every iterates over the statuses of a pod's containers: initContainers, containers, then ephemeral containers.
func Every(status *corev1.PodStatus) iter.Seq[*corev1.ContainerStatus] {
	return func(yield func(*corev1.ContainerStatus) bool) {
		for _, list := range [][]corev1.ContainerStatus{
			status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses,
		} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// Named returns the status of a container of any kind, empty if it is missing.
func Named(status *corev1.PodStatus, name string) corev1.ContainerStatus {
	for c := range Every(status) {
		if c.Name == name {
			return *c
		}
	}
	return corev1.ContainerStatus{}
}

// AnyStarted reports whether a container runs or has run.
func AnyStarted(statuses []corev1.ContainerStatus) bool {
	return slices.ContainsFunc(statuses, func(status corev1.ContainerStatus) bool {
		return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
	})
}
