// Package podstatus tells what follows from the statuses of a pod's containers for
// the pod: its phase, its conditions and its exit code, as the kubelet has them.
package podstatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Phase is the phase that follows from the containers' states, as the kubelet
// has it; terminal says that nothing is started any more.
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
			all.sidecar(Of(status.InitContainerStatuses, c.Name))
		case podspec.Regular:
			all.regular(pod, c, Of(status.ContainerStatuses, c.Name))
		}
	}
	return all.phase(terminal)
}

// countInits tells whether the start has not come to the regular containers,
// and whether it never will.
func countInits(pod *corev1.Pod, all *corev1.PodStatus) (pending, failed bool) {
	statuses, begun, before := all.InitContainerStatuses, AnyStarted(all.ContainerStatuses), Restarts(&pod.Spec, all)
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		status := Of(statuses, spec.Name)
		switch kind := podspec.InitKind(spec); {
		case kind == podspec.Sidecar:
			up := status.State.Running != nil && status.Started != nil && *status.Started
			ended := status.State.Terminated != nil || status.LastTerminationState.Terminated != nil && status.State.Running == nil
			pending = pending || !begun && !up && !ended
		case status.State.Terminated != nil:
			code := status.State.Terminated.ExitCode
			failed = failed || code != 0 && !podspec.Restarts(pod, kind, spec, code, before)
		case status.State.Waiting != nil && status.LastTerminationState.Terminated != nil:
			// It failed and is started again, or its machine was replaced.
		default:
			pending = true
		}
	}
	return pending, failed
}

// tally counts what the containers of a pod do.
type tally struct {
	running, waiting, unknown, stopped, final, succeeded int

	before int32 // how often containers were started again
}

// sidecar counts one; how it ended does not matter.
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
		return corev1.PodPending // not everything has been started
	case t.running > 0:
		return corev1.PodRunning
	case t.stopped == 0:
		return corev1.PodPending
	case !terminal && t.final < t.stopped:
		return corev1.PodRunning // about to be started again
	case t.succeeded == t.stopped:
		return corev1.PodSucceeded
	}
	return corev1.PodFailed
}

// Restarts is how often the initial and regular containers were started again.
func Restarts(spec *corev1.PodSpec, status *corev1.PodStatus) (n int32) {
	for c, kind := range podspec.All(spec) {
		switch kind {
		case podspec.Initial:
			n += Of(status.InitContainerStatuses, c.Name).RestartCount
		case podspec.Regular:
			n += Of(status.ContainerStatuses, c.Name).RestartCount
		}
	}
	return n
}

// Of is that of the container of a name, empty for none.
func Of(statuses []corev1.ContainerStatus, name string) corev1.ContainerStatus {
	for _, status := range statuses {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// AnyStarted tells whether a container runs or has run.
func AnyStarted(statuses []corev1.ContainerStatus) bool {
	return slices.ContainsFunc(statuses, func(status corev1.ContainerStatus) bool {
		return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
	})
}
