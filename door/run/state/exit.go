package state

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// CodeDeadline is the exit code of a pod that was ended because its time was over, as podman has it.
const CodeDeadline = 255

// ExitCode is the pod's as a command's, and 1 for one that has failed and no
// container of which tells why.
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

// EndMessage is what the last of the containers has said that failed, or the status
// says. Sidecars do not count: their ends are not the pod's.
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
