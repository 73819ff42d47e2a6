// Package state says in few words and figures how a pod is, as kubectl and shells
// have it.
package state

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod"
)

// Terminating is the text of a pod that runs and is to end.
const Terminating = "Terminating"

// Stopped is the text of a pod whose end was asked for, and whose containers ended by that.
const Stopped = "Stopped"

// Signalled tells whether the containers of a pod that has ended failed by nothing but signals.
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

// Text is kubectl's STATUS column: the phase, unless a container's state says more.
func Text(p *corev1.Pod, status corev1.PodStatus) string {
	text := string(status.Phase)
	if status.Reason != "" {
		text = status.Reason
	}
	if status.Reason == pod.ReasonDeadline {
		return text // rather than how its containers took it
	}
	if initial := initText(p, status); initial != "" && !initialised(status) {
		return initial
	}
	runs := slices.ContainsFunc(status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
	for _, c := range status.ContainerStatuses {
		switch end := c.State.Terminated; {
		case c.State.Waiting != nil && c.State.Waiting.Reason == pod.ReasonCreating && status.Phase == corev1.PodFailed:
			// It was ended before it had begun.
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

// initText says how far the start has come, empty when it is done.
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

// over tells whether the initial container at i holds the start up no longer.
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

// isSidecar tells what the pod's initial container at i is.
func isSidecar(p *corev1.Pod, i int) bool {
	if i >= len(p.Spec.InitContainers) {
		return false
	}
	policy := p.Spec.InitContainers[i].RestartPolicy
	return policy != nil && *policy == corev1.ContainerRestartPolicyAlways
}
