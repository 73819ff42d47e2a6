package podstatus

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Condition is the state of one condition, with the kubelet's reasons.
type Condition struct {
	Status          corev1.ConditionStatus
	Reason, Message string
}

// ContainersReady returns whether every regular container and sidecar is ready.
func ContainersReady(spec *corev1.PodSpec, status *corev1.PodStatus) Condition {
	var unready []string
	for c, kind := range podspec.All(spec) {
		if kind != podspec.Initial && !Named(status, c.Name).Ready {
			unready = append(unready, c.Name)
		}
	}
	switch {
	case status.Phase == corev1.PodSucceeded:
		return Condition{Status: corev1.ConditionFalse, Reason: "PodCompleted"}
	case status.Phase == corev1.PodFailed:
		return Condition{Status: corev1.ConditionFalse, Reason: "PodFailed"}
	case len(unready) > 0:
		return Condition{corev1.ConditionFalse, "ContainersNotReady", "containers with unready status: [" + strings.Join(unready, " ") + "]"}
	}
	return Condition{Status: corev1.ConditionTrue}
}

// Ready returns whether the containers are ready and the conditions of the pod's readiness gates are true.
func Ready(spec *corev1.PodSpec, containers Condition, others []corev1.PodCondition) Condition {
	if containers.Status != corev1.ConditionTrue {
		return containers
	}
	var unready []string
	for _, gate := range spec.ReadinessGates {
		message := fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType)
		for _, other := range others {
			if other.Type != gate.ConditionType {
				continue
			}
			message = ""
			if other.Status != corev1.ConditionTrue {
				message = fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, other.Status)
			}
		}
		if message != "" {
			unready = append(unready, message)
		}
	}
	if len(unready) > 0 {
		return Condition{corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(unready, ", ")}
	}
	return Condition{Status: corev1.ConditionTrue}
}

// Initialized returns whether the init containers have succeeded and the sidecars have started once.
func Initialized(spec *corev1.PodSpec, status *corev1.PodStatus) Condition {
	var incomplete []string
	for c, kind := range podspec.All(spec) {
		one := Named(status, c.Name)
		done := kind == podspec.Regular || one.Ready
		if kind == podspec.Sidecar {
			done = one.Started != nil && *one.Started
		}
		if !done {
			incomplete = append(incomplete, c.Name)
		}
	}
	switch {
	case status.Phase == corev1.PodSucceeded:
		return Condition{Status: corev1.ConditionTrue, Reason: "PodCompleted"}
	case len(incomplete) == 0, AnyStarted(status.ContainerStatuses):
		return Condition{Status: corev1.ConditionTrue}
	}
	return Condition{corev1.ConditionFalse, "ContainersNotInitialized",
		"containers with incomplete status: [" + strings.Join(incomplete, " ") + "]"}
}
