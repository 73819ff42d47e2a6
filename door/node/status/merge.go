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

// merge lays what the machine says of a pod over what the API server has: the conditions of
// others stay, and so does what a node does not know. A pod that has ended stays so; a mirror does not, for the static pod that
// it shows may run again.
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

// disrupted tells whether a condition is that of a pod which the node itself ends: it is others' as well.
func disrupted(now *corev1.PodStatus, kind corev1.PodConditionType) bool {
	return kind == corev1.DisruptionTarget && slices.ContainsFunc(now.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
}

// kept is a condition with the time at which the API server saw it change.
func kept(old *corev1.PodStatus, c corev1.PodCondition) corev1.PodCondition {
	for _, before := range old.Conditions {
		if before.Type == c.Type && before.Status == c.Status {
			c.LastTransitionTime, c.LastProbeTime = before.LastTransitionTime, before.LastProbeTime
		}
	}
	return c
}
