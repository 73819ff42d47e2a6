// Package state describes a pod's state in short texts and figures, like kubectl and shells.
package state

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Terminating is the text of a running pod that is being stopped.
const Terminating = "Terminating"

// Stopped is the text of a pod that was stopped on request and ended by it.
const Stopped = "Stopped"

// Signalled reports whether all failed containers of an ended pod were ended by signals, and at least one failed.
func Signalled(status corev1.PodStatus) bool {
	signals := 0
	for _, c := range status.ContainerStatuses {
		switch end := c.State.Terminated; {
		case end == nil || end.ExitCode == 0:
		case end.ExitCode <= 128:
			return false
		default:
			signals++
		}
	}
	return signals > 0
}

// Text returns kubectl's STATUS column: the phase, or a more specific state of a container.
func Text(p *corev1.Pod, status corev1.PodStatus) string {
	text := string(status.Phase)
	if status.Reason != "" {
		text = status.Reason
	}
	if status.Reason == pod.ReasonDeadline {
		return text // rather than how the containers ended
	}
	if initial := initText(p, status); initial != "" && !initialised(status) {
		return initial
	}
	runs := slices.ContainsFunc(status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
	for _, c := range status.ContainerStatuses {
		switch end := c.State.Terminated; {
		case c.State.Waiting != nil && c.State.Waiting.Reason == pod.ReasonCreating && status.Phase == corev1.PodFailed:
			// It was ended before it started.
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return c.State.Waiting.Reason
		case end != nil && end.ExitCode != 0:
			return end.Reason
		case end != nil && !runs:
			text = end.Reason
		}
	}
	return text
}

// initText describes the progress of the init containers. It is empty when they are done.
func initText(p *corev1.Pod, status corev1.PodStatus) string {
	for i, c := range status.InitContainerStatuses {
		end, waits := c.State.Terminated, c.State.Waiting
		switch {
		case over(p, i, c):
			continue
		case end != nil:
			return "Init:" + end.Reason
		case waits != nil && waits.Reason != "" && waits.Reason != "PodInitializing":
			return "Init:" + waits.Reason
		}
		return fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
	}
	return ""
}

// over reports whether the init container at i no longer delays the start.
func over(p *corev1.Pod, i int, c corev1.ContainerStatus) bool {
	end := c.State.Terminated
	return end != nil && end.ExitCode == 0 || isSidecar(p, i) && c.Started != nil && *c.Started
}

func initialised(status corev1.PodStatus) bool {
	for _, c := range status.Conditions {
		if c.Type == corev1.PodInitialized {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// isSidecar reports whether the pod's init container at i is a sidecar.
func isSidecar(p *corev1.Pod, i int) bool {
	return i < len(p.Spec.InitContainers) && podspec.InitKind(&p.Spec.InitContainers[i]) == podspec.Sidecar
}
