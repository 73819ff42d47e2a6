package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// publish makes the status, and tells it if it has changed.
func (r *run) publish() {
	sandbox, ids, ending := "", make(map[string]string), make(map[string]bool)
	if r.sandbox != nil {
		sandbox = r.sandbox.GetId()
	}
	for _, c := range r.containers {
		if c.newest != nil {
			ids[c.spec.Name] = c.newest.id()
		}
		if id := c.newest.id(); id != "" && (c.failing == id || c.replaced == id) {
			ending[id] = true
		}
	}
	r.p.publish(r.makeStatus(), sandbox, ids, ending)
}

// makeStatus is the pod's status as the kubelet would make it.
func (r *run) makeStatus() corev1.PodStatus {
	began := metav1.NewTime(r.began)
	status := corev1.PodStatus{
		ObservedGeneration: r.pod.Generation,
		HostIP:             r.o.HostIP,
		StartTime:          &began,
		QOSClass:           qosClass(r.pod),
	}
	if r.o.HostIP != "" {
		status.HostIPs = []corev1.HostIP{{IP: r.o.HostIP}}
	}
	for _, ip := range r.ips() {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(status.PodIPs) == 0 && r.sandbox != nil {
		status.PodIPs = r.last.PodIPs // a pod that has ended keeps its last ones
	}
	if len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
	for _, c := range r.containers {
		of := &status.ContainerStatuses
		switch c.kind {
		case initial, sidecar:
			of = &status.InitContainerStatuses
		case ephemeral:
			of = &status.EphemeralContainerStatuses
		}
		*of = append(*of, r.containerStatus(c))
	}
	status.Phase = r.phase(&status)
	switch {
	case r.fatal != nil:
		status.Reason, status.Message = "FailedStart", r.fatal.Error()
	case r.expired:
		status.Reason, status.Message = ReasonDeadline, messageDeadline
	case r.sandboxErr != nil:
		status.Message = r.sandboxErr.Error()
	}
	status.Conditions = r.conditions(&status)
	if r.ended && r.fatal == nil {
		endAll(&r.pod.Spec, &status)
	}
	r.last = status
	return status
}

// ips are the sandbox's addresses, the first one first.
func (r *run) ips() []string {
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

// phase follows from the containers, but an end is told only when the machine
// is gone, and one that was forced is a failure whatever the containers did.
func (r *run) phase(status *corev1.PodStatus) corev1.PodPhase {
	phase := phaseOf(&r.pod.Spec, status, r.ended)
	switch {
	case r.ended && (r.fatal != nil || r.expired || phase != corev1.PodSucceeded):
		return corev1.PodFailed
	case r.ended || phase == corev1.PodPending || phase == corev1.PodRunning:
		return phase
	case anyStarted(status.ContainerStatuses):
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// nano is the time of a CRI time stamp; 0 is the zero time.
func nano(stamp int64) time.Time {
	if stamp == 0 {
		return time.Time{}
	}
	return time.Unix(0, stamp)
}
