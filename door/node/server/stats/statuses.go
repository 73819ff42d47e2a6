package stats

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// statuses returns the statuses of the node's pods.
func (n *Node) statuses() map[types.UID]corev1.PodStatus {
	if n.Statuses == nil {
		return nil
	}
	return n.Statuses()
}

// lists returns the statuses of all of a pod's containers.
func lists(status *corev1.PodStatus) [][]corev1.ContainerStatus {
	return [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses}
}
