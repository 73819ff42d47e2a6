package podstatus

import (
	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// CodeLost is the exit code of a container that was lost with its VM.
const CodeLost = 137

// EndAll marks the containers of an ended pod as terminated, as far as the pod's start had come; later ones keep
// waiting. Like the kubelet, it counts containers with an unknown end as failed.
func EndAll(spec *corev1.PodSpec, status *corev1.PodStatus) {
	unknown := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated", ExitCode: CodeLost,
	}}
	end := func(list []corev1.ContainerStatus) {
		for i := range list {
			if list[i].State.Terminated == nil {
				list[i].State = unknown
			}
		}
	}
	if Initialized(spec, status).Status == corev1.ConditionTrue {
		end(status.ContainerStatuses)
	}
	inits := status.InitContainerStatuses
	for last := len(inits) - 1; last >= 0; last-- {
		if inits[last].State.Waiting == nil || inits[last].LastTerminationState.Terminated != nil || last == 0 {
			end(inits[:last+1])
			break
		}
	}
}

// Ended reports whether the pod has ended.
func Ended(status *corev1.PodStatus) bool {
	return status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
}

// ExitCode returns the pod's exit code as a command's: the code of the first failed container, in the pod's order,
// init containers first, else 0. It is 127 if the command does not exist, and 126 if it cannot be executed. Sidecars do
// not count. It is unknown before the pod has ended.
func ExitCode(spec *corev1.PodSpec, status *corev1.PodStatus) (code int, known bool) {
	if !Ended(status) {
		return 0, false
	}
	for c, kind := range podspec.All(spec) {
		if end := Named(status, c.Name).State.Terminated; kind != podspec.Sidecar && end != nil && end.ExitCode != 0 {
			return runtimev1.CommandCode(end.Reason, end.Message, end.ExitCode), true
		}
	}
	return 0, true
}
