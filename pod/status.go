package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// publish computes the status, and announces a change.
func (r *run) publish() {
	sandbox, ids, ending := "", make(map[string]string), make(map[string]bool)
	if r.sandbox != nil {
		sandbox = r.sandbox.GetId()
	}
	for _, c := range r.containers {
		if c.newest != nil {
			ids[c.spec.Name] = c.newest.ID()
		}
		if id := c.newest.ID(); id != "" && (c.failing == id || c.replaced == id) {
			ending[id] = true
		}
	}
	r.p.publish(r.makeStatus(), r.asked, sandbox, ids, ending)
}

// makeStatus returns the pod's status as a kubelet would report it.
func (r *run) makeStatus() corev1.PodStatus {
	status := corev1.PodStatus{
		ObservedGeneration: r.pod.Generation,
		HostIP:             r.o.HostIP,
		QOSClass:           podspec.QOS(r.pod),
	}
	if !r.turn.awaited {
		began := metav1.NewTime(r.began)
		status.StartTime = &began
	}
	if r.o.HostIP != "" {
		status.HostIPs = []corev1.HostIP{{IP: r.o.HostIP}}
	}
	for _, ip := range r.ips() {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(status.PodIPs) == 0 && r.sandbox != nil {
		status.PodIPs = r.last.PodIPs // a pod that has ended keeps its last addresses
	}
	if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
	for _, c := range r.containers {
		if r.turn.awaited {
			break // like a pod that no kubelet has seen
		}
		of := &status.ContainerStatuses
		switch c.kind {
		case podspec.Initial, podspec.Sidecar:
			of = &status.InitContainerStatuses
		case podspec.Ephemeral:
			of = &status.EphemeralContainerStatuses
		}
		*of = append(*of, r.containerStatus(c))
	}
	status.Phase = r.phase(&status)
	switch {
	case r.fatal != nil:
		status.Reason, status.Message = "FailedStart", r.fatal.Error()
	case r.expired:
		status.Reason, status.Message = ReasonDeadline, r.overdue()
	case r.turn.never:
		status.Reason, status.Message = ReasonJobFailed, messageJobFailed
	case r.ended && r.turn.awaited:
		status.Message = messageStopped
	case r.exhausted():
		status.Reason, status.Message = ReasonBackoffLimit, messageBackoffLimit
	case r.sandboxErr != nil:
		status.Message = r.sandboxErr.Error()
	case r.ended && status.Phase == corev1.PodFailed && r.sandbox != nil && r.stoppedSandbox == r.sandbox.GetId() && r.p.stopping() == nil:
		status.Reason, status.Message = ReasonVMKilled, messageVMKilled
	}
	status.Conditions = r.conditions(&status)
	if r.ended && r.fatal == nil {
		podstatus.EndAll(&r.pod.Spec, &status)
	}
	if r.looked {
		r.last = status
	}
	return status
}

// ips returns the sandbox's addresses, the primary one first. A pod on the host's network has the host's address, which
// the runtime does not report.
func (r *run) ips() []string {
	if r.pod.Spec.HostNetwork && r.o.HostIP != "" && r.ready() {
		return []string{r.o.HostIP}
	}
	network := r.sandbox.GetNetwork()
	if network.GetIp() == "" {
		return nil
	}
	ips := []string{network.GetIp()}
	for _, more := range network.GetAdditionalIps() {
		ips = append(ips, more.GetIp())
	}
	return ips
}

// phase returns the pod's phase. The pod ends only when its VM is gone. A forced end is a failure, whatever the exit
// codes.
func (r *run) phase(status *corev1.PodStatus) corev1.PodPhase {
	phase := podstatus.Phase(r.pod, status, r.ended)
	switch {
	case r.ended && (r.fatal != nil || r.expired || phase != corev1.PodSucceeded):
		return corev1.PodFailed
	case r.ended || phase == corev1.PodPending || phase == corev1.PodRunning:
		return phase
	case podstatus.AnyStarted(status.ContainerStatuses):
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// conditions returns the pod's own conditions, with the times of their last change, and those that others set.
func (r *run) conditions(status *corev1.PodStatus) []corev1.PodCondition {
	var others []corev1.PodCondition
	if r.o.Conditions != nil {
		others = r.o.Conditions()
	}
	sandbox := podstatus.Condition{Status: corev1.ConditionFalse}
	if r.ready() && !r.ended {
		sandbox.Status = corev1.ConditionTrue
	}
	containers := podstatus.ContainersReady(&r.pod.Spec, status)
	var out []corev1.PodCondition
	for _, entry := range []struct {
		kind corev1.PodConditionType
		podstatus.Condition
	}{
		{corev1.PodReadyToStartContainers, sandbox},
		{corev1.PodInitialized, podstatus.Initialized(&r.pod.Spec, status)},
		{corev1.PodReady, podstatus.Ready(&r.pod.Spec, containers, others)},
		{corev1.ContainersReady, containers},
		{corev1.PodScheduled, r.scheduled()},
	} {
		if r.turn.awaited && (entry.kind != corev1.PodScheduled || !r.turn.reported && !r.ended) {
			continue // whoever follows the start must not hear of waiting before Turn was called
		}
		out = append(out, corev1.PodCondition{
			Type: entry.kind, Status: entry.Status, Reason: entry.Reason, Message: entry.Message,
			ObservedGeneration: r.pod.Generation, LastTransitionTime: r.since(entry.kind, entry.Status),
		})
	}
	return append(append(out, r.resizeConditions()...), others...)
}

// since returns when a condition took its status.
func (r *run) since(kind corev1.PodConditionType, status corev1.ConditionStatus) metav1.Time {
	for _, before := range r.last.Conditions {
		if before.Type == kind && before.Status == status {
			return before.LastTransitionTime
		}
	}
	return metav1.NewTime(time.Now())
}
