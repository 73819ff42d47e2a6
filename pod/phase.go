package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// phaseOf is the phase that follows from the containers' states, as the kubelet
// has it; terminal says that nothing is started any more.
func phaseOf(spec *corev1.PodSpec, status *corev1.PodStatus, terminal bool) corev1.PodPhase {
	pod := &corev1.Pod{Spec: *spec}
	if pending, failed := countInits(pod, status.InitContainerStatuses, anyStarted(status.ContainerStatuses)); failed {
		return corev1.PodFailed
	} else if pending {
		return corev1.PodPending
	}
	var all tally
	for i := range spec.InitContainers {
		if initKind(&spec.InitContainers[i]) == sidecar {
			all.sidecar(statusOf(status.InitContainerStatuses, spec.InitContainers[i].Name))
		}
	}
	for i := range spec.Containers {
		all.regular(pod, &spec.Containers[i], statusOf(status.ContainerStatuses, spec.Containers[i].Name))
	}
	return all.phase(terminal)
}

// countInits tells whether the start has not come to the regular containers,
// and whether it never will.
func countInits(pod *corev1.Pod, statuses []corev1.ContainerStatus, begun bool) (pending, failed bool) {
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		status := statusOf(statuses, spec.Name)
		switch kind := initKind(spec); {
		case kind == sidecar:
			up := status.State.Running != nil && status.Started != nil && *status.Started
			ended := status.State.Terminated != nil || status.LastTerminationState.Terminated != nil && status.State.Running == nil
			pending = pending || !begun && !up && !ended
		case status.State.Terminated != nil:
			code := status.State.Terminated.ExitCode
			failed = failed || code != 0 && !restarts(pod, kind, spec, code)
		case status.State.Waiting != nil && status.LastTerminationState.Terminated != nil:
			// It failed and is started again, or its machine was replaced.
		default:
			pending = true
		}
	}
	return pending, failed
}

// tally counts what the containers of a pod do.
type tally struct{ running, waiting, unknown, stopped, final, succeeded int }

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
		if !restarts(pod, regular, spec, end.ExitCode) {
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

// statusOf is that of the container of a name, empty for none.
func statusOf(statuses []corev1.ContainerStatus, name string) corev1.ContainerStatus {
	for _, status := range statuses {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// anyStarted tells whether a container runs or has run.
func anyStarted(statuses []corev1.ContainerStatus) bool {
	return slices.ContainsFunc(statuses, func(status corev1.ContainerStatus) bool {
		return status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
	})
}
