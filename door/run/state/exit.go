package state

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// CodeDeadline is the exit code of a pod that ended by its deadline, as in podman.
const CodeDeadline = 255

// ExitCode returns the exit code of a command for the pod. It is 1 for a failed pod without a failed container.
func ExitCode(p *corev1.Pod, status corev1.PodStatus) int {
	if status.Phase == corev1.PodFailed && status.Reason == pod.ReasonDeadline {
		return CodeDeadline
	}
	code, _ := podstatus.ExitCode(&p.Spec, &status)
	if code == 0 && status.Phase == corev1.PodFailed {
		return 1
	}
	return code
}

// EndMessage returns the message of the last failed container, or of the status. Sidecars do not count, because the
// pod does not end with them.
func EndMessage(p *corev1.Pod, status corev1.PodStatus) string {
	text := status.Message
	if status.Reason == pod.ReasonDeadline {
		return text
	}
	look := func(c corev1.ContainerStatus) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && t.Message != "" {
			text = c.Name + ": " + t.Message
		}
	}
	for i, c := range status.InitContainerStatuses {
		if !isSidecar(p, i) {
			look(c)
		}
	}
	for _, c := range status.ContainerStatuses {
		look(c)
	}
	return text
}
