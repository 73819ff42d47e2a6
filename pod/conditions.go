package pod

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions are the pod's own, with the time of their last change, and those
// that others set.
func (r *run) conditions(status *corev1.PodStatus) []corev1.PodCondition {
	var others []corev1.PodCondition
	if r.o.Conditions != nil {
		others = r.o.Conditions()
	}
	sandbox := condition{status: corev1.ConditionFalse}
	if r.ready() && !r.ended {
		sandbox.status = corev1.ConditionTrue
	}
	containers := containersReady(&r.pod.Spec, status)
	var out []corev1.PodCondition
	for _, entry := range []struct {
		kind corev1.PodConditionType
		condition
	}{
		{corev1.PodReadyToStartContainers, sandbox},
		{corev1.PodInitialized, initialized(&r.pod.Spec, status)},
		{corev1.PodReady, podReady(&r.pod.Spec, containers, others)},
		{corev1.ContainersReady, containers},
		{corev1.PodScheduled, condition{status: corev1.ConditionTrue}},
	} {
		out = append(out, corev1.PodCondition{
			Type: entry.kind, Status: entry.status, Reason: entry.reason, Message: entry.message,
			ObservedGeneration: r.pod.Generation, LastTransitionTime: r.since(entry.kind, entry.status),
		})
	}
	return append(append(out, r.resizeConditions()...), others...)
}

// since is when a condition took its status.
func (r *run) since(kind corev1.PodConditionType, status corev1.ConditionStatus) metav1.Time {
	for _, before := range r.last.Conditions {
		if before.Type == kind && before.Status == status {
			return before.LastTransitionTime
		}
	}
	return metav1.NewTime(time.Now())
}

// condition is what there is to say of one, with the kubelet's reasons.
type condition struct {
	status          corev1.ConditionStatus
	reason, message string
}

// containersReady tells whether every regular container and sidecar is ready.
func containersReady(spec *corev1.PodSpec, status *corev1.PodStatus) condition {
	var unready []string
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; initKind(c) == sidecar && !statusOf(status.InitContainerStatuses, c.Name).Ready {
			unready = append(unready, c.Name)
		}
	}
	for _, c := range spec.Containers {
		if !statusOf(status.ContainerStatuses, c.Name).Ready {
			unready = append(unready, c.Name)
		}
	}
	switch {
	case status.Phase == corev1.PodSucceeded:
		return condition{status: corev1.ConditionFalse, reason: "PodCompleted"}
	case status.Phase == corev1.PodFailed:
		return condition{status: corev1.ConditionFalse, reason: "PodFailed"}
	case len(unready) > 0:
		return condition{corev1.ConditionFalse, "ContainersNotReady", "containers with unready status: [" + strings.Join(unready, " ") + "]"}
	}
	return condition{status: corev1.ConditionTrue}
}

// podReady tells whether the containers are ready and the conditions that the
// pod's readiness gates name are true.
func podReady(spec *corev1.PodSpec, containers condition, others []corev1.PodCondition) condition {
	if containers.status != corev1.ConditionTrue {
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
		return condition{corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(unready, ", ")}
	}
	return condition{status: corev1.ConditionTrue}
}

// initialized tells whether the initial containers have ended well and the
// sidecars have started, once.
func initialized(spec *corev1.PodSpec, status *corev1.PodStatus) condition {
	var incomplete []string
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		one := statusOf(status.InitContainerStatuses, c.Name)
		done := one.Ready
		if initKind(c) == sidecar {
			done = one.Started != nil && *one.Started
		}
		if !done {
			incomplete = append(incomplete, c.Name)
		}
	}
	switch {
	case status.Phase == corev1.PodSucceeded:
		return condition{status: corev1.ConditionTrue, reason: "PodCompleted"}
	case len(incomplete) == 0, anyStarted(status.ContainerStatuses):
		return condition{status: corev1.ConditionTrue}
	}
	return condition{corev1.ConditionFalse, "ContainersNotInitialized", "containers with incomplete status: [" + strings.Join(incomplete, " ") + "]"}
}
