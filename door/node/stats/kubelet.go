package stats

import (
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// statuses are those of the node's pods.
func (n *Node) statuses() map[types.UID]corev1.PodStatus {
	if n.Statuses == nil {
		return nil
	}
	return n.Statuses()
}

// lists are all of a pod's containers.
func lists(status *corev1.PodStatus) [][]corev1.ContainerStatus {
	return [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses}
}

// kubelet writes what the node tells of itself, by a kubelet's names: how many pods and containers there are, and how
// long pods took that run, from when the node first saw them until all their containers had started.
func (n *Node) kubelet(w io.Writer) {
	p := page{w}
	pods, containers := 0, map[string]int{"created": 0, "running": 0, "exited": 0}
	count, sum := 0, 0.0
	for _, status := range n.statuses() {
		if status.Phase == corev1.PodRunning {
			pods++
		}
		for _, list := range lists(&status) {
			for i := range list {
				switch state := list[i].State; {
				case state.Running != nil:
					containers["running"]++
				case state.Terminated != nil:
					containers["exited"]++
				case list[i].ContainerID != "":
					containers["created"]++
				}
			}
		}
		if took, ran := started(&status); ran {
			count++
			sum += took
		}
	}
	p.plain("kubelet_node_name", "gauge", "The node's name. The count is always 1.")
	p.bare("kubelet_node_name", label("node", n.Name), 1)
	p.plain("kubelet_running_pods", "gauge", "Number of pods that have a running pod sandbox")
	p.bare("kubelet_running_pods", "", float64(pods))
	p.plain("kubelet_running_containers", "gauge", "Number of containers currently running")
	for _, state := range []string{"created", "exited", "running"} {
		p.bare("kubelet_running_containers", label("container_state", state), float64(containers[state]))
	}
	p.plain("kubelet_pod_start_duration_seconds", "summary",
		"Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run, of the pods that are there")
	p.bare("kubelet_pod_start_duration_seconds_sum", "", sum)
	p.bare("kubelet_pod_start_duration_seconds_count", "", float64(count))
}

// started is how long a pod took until its last container had started for the first time. One that was restarted, or has
// ended, does not tell.
func started(status *corev1.PodStatus) (seconds float64, ran bool) {
	if status.StartTime == nil || len(status.ContainerStatuses) == 0 {
		return 0, false
	}
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		if c.State.Running == nil || c.RestartCount > 0 {
			return 0, false
		}
		seconds = max(seconds, c.State.Running.StartedAt.Sub(status.StartTime.Time).Seconds())
	}
	return seconds, true
}
