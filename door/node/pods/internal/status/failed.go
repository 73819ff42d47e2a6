package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// podFailed is the kubelet's reason for conditions that are false because the pod has failed.
const podFailed = "PodFailed"

// failed returns the status of an unfinished pod that the runner has lost. The pod is not ready, and its running
// containers have ended in an unknown way.
func failed(old *corev1.PodStatus, reason, message string) corev1.PodStatus {
	next := *old.DeepCopy()
	next.Phase, next.Reason, next.Message = corev1.PodFailed, reason, message
	now := metav1.Now()
	if next.StartTime == nil {
		next.StartTime = &now
	}
	next.Conditions = slices.DeleteFunc(next.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress
	})
	for i := range next.Conditions {
		c := &next.Conditions[i]
		switch c.Type {
		case corev1.PodReady, corev1.ContainersReady, corev1.PodReadyToStartContainers:
			if c.Status != corev1.ConditionFalse {
				c.Status, c.LastTransitionTime = corev1.ConditionFalse, now
			}
			c.Reason, c.Message = podFailed, ""
		}
	}
	for c := range podstatus.Every(&next) {
		lost(c)
	}
	return next
}

// lost marks a running container as terminated, like a kubelet that does not find it.
func lost(c *corev1.ContainerStatus) {
	if c.State.Running == nil {
		return
	}
	c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown", StartedAt: c.State.Running.StartedAt, ContainerID: c.ContainerID,
		Message: "The container could not be located when the pod was terminated",
	}}
	c.Ready, c.Started = false, new(false)
}
