package state

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// Counts has the values of kubectl's columns READY and RESTARTS.
type Counts struct {
	Ready      int // of Containers
	Containers int // regular ones and sidecars
	// Restarts counts the init containers up to the current one during initialisation, and the Containers
	// afterwards.
	Restarts int
}

// Count counts a pod's containers.
func Count(p *corev1.Pod, status corev1.PodStatus) Counts {
	n := Counts{Containers: len(p.Spec.Containers)}
	add := func(c corev1.ContainerStatus) {
		n.Restarts += int(c.RestartCount)
		if c.Ready {
			n.Ready++
		}
	}
	for i, c := range status.InitContainerStatuses {
		if isSidecar(p, i) {
			n.Containers++
			add(c)
		}
	}
	for _, c := range status.ContainerStatuses {
		add(c)
	}
	if initText(p, status) != "" && !initialised(status) {
		n.Restarts = 0
		for i, c := range status.InitContainerStatuses {
			n.Restarts += int(c.RestartCount)
			if !over(p, i, c) {
				break
			}
		}
	}
	return n
}

// Begun counts the containers that run or have run.
func Begun(statuses []corev1.ContainerStatus) int {
	n := 0
	for _, c := range statuses {
		if c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil {
			n++
		}
	}
	return n
}

// UnderWay reports whether a pod's start is under way. With init containers, one must have started. Without, all
// containers must have started.
func UnderWay(p *corev1.Pod, status corev1.PodStatus) bool {
	return Begun(status.InitContainerStatuses) > 0 || Begun(status.ContainerStatuses) == len(p.Spec.Containers)
}

// Queued reports whether the pod waits for its turn.
func Queued(status corev1.PodStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
}

// MemoryLimits returns the containers' limits in bytes by name. For a running container it is the limit in force,
// for others the specified one.
func MemoryLimits(p *corev1.Pod, status corev1.PodStatus) map[string]int64 {
	limits := map[string]int64{}
	for c := range podspec.All(&p.Spec) {
		limits[c.Name] = c.Resources.Limits.Memory().Value()
	}
	for c := range podstatus.Every(&status) {
		if c.Resources != nil && c.State.Running != nil {
			limits[c.Name] = c.Resources.Limits.Memory().Value()
		}
	}
	return limits
}
