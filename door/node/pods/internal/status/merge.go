package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// own are the conditions that a node sets. All others belong to other writers.
var own = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
	corev1.PodResizePending, corev1.PodResizeInProgress,
}

// merge combines the runner's status with the API server's. It keeps the conditions of other writers and the fields
// that a node does not set. An ended pod keeps its phase. A mirror pod does not, because its static pod may run again.
func merge(old *corev1.PodStatus, now corev1.PodStatus, mirror bool) corev1.PodStatus {
	next := *now.DeepCopy()
	next.Conditions = nil
	for _, c := range old.Conditions {
		if !slices.Contains(own, c.Type) && !disrupted(&now, c.Type) {
			next.Conditions = append(next.Conditions, c)
		}
	}
	for _, c := range now.Conditions {
		if slices.Contains(own, c.Type) || disrupted(&now, c.Type) {
			next.Conditions = append(next.Conditions, kept(old, c))
		}
	}
	if old.StartTime != nil {
		next.StartTime = old.StartTime
	}
	if next.PodIP == "" && old.PodIP != "" {
		next.PodIP, next.PodIPs = old.PodIP, old.PodIPs
	}
	if old.QOSClass != "" {
		next.QOSClass = old.QOSClass
	}
	if podstatus.Ended(old) && !mirror {
		next.Phase, next.Reason, next.Message = old.Phase, old.Reason, old.Message
	}
	next.NominatedNodeName = old.NominatedNodeName
	next.ResourceClaimStatuses = old.ResourceClaimStatuses
	next.ExtendedResourceClaimStatus = old.ExtendedResourceClaimStatus
	next.ObservedGeneration = max(next.ObservedGeneration, old.ObservedGeneration)
	return next
}

// disrupted reports whether the node itself set the DisruptionTarget condition, which other writers may set too.
func disrupted(now *corev1.PodStatus, kind corev1.PodConditionType) bool {
	return kind == corev1.DisruptionTarget && slices.ContainsFunc(now.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
}

// kept returns a condition with the API server's transition time if its status is unchanged.
func kept(old *corev1.PodStatus, c corev1.PodCondition) corev1.PodCondition {
	for _, before := range old.Conditions {
		if before.Type == c.Type && before.Status == c.Status {
			c.LastTransitionTime, c.LastProbeTime = before.LastTransitionTime, before.LastProbeTime
		}
	}
	return c
}
