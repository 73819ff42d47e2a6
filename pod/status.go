package pod

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// publish makes the status, and tells it if it has changed.
func (r *run) publish() {
	sandbox, ids := "", make(map[string]string)
	if r.sandbox != nil {
		sandbox = r.sandbox.GetId()
	}
	for _, c := range r.containers {
		if c.newest != nil {
			ids[c.spec.Name] = c.newest.status.GetId()
		}
	}
	r.p.publish(r.makeStatus(), sandbox, ids)
}

// makeStatus is the pod's status as the kubelet would make it.
func (r *run) makeStatus() corev1.PodStatus {
	began := metav1.NewTime(r.began)
	if r.sandbox != nil && r.sandbox.GetCreatedAt() > 0 && nano(r.sandbox.GetCreatedAt()).Before(r.began) {
		began = metav1.NewTime(nano(r.sandbox.GetCreatedAt())) // taken over
	}
	status := corev1.PodStatus{
		HostIP:    r.o.HostIP,
		StartTime: &began,
		QOSClass:  qosClass(r.pod),
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
		status.ContainerStatuses = append(status.ContainerStatuses, r.containerStatus(c))
	}
	status.Phase = r.phase(status.ContainerStatuses)
	if r.fatal != nil {
		status.Reason, status.Message = "FailedStart", r.fatal.Error()
	} else if r.sandboxErr != nil {
		status.Message = r.sandboxErr.Error()
	}
	status.Conditions = r.conditions(&status)
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

func (r *run) containerStatus(c *container) corev1.ContainerStatus {
	started := r.running(c)
	out := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, Started: &started, Ready: started,
	}
	last := c.previous
	if c.newest != nil {
		status := c.newest.status
		out.RestartCount = c.newest.restarts
		out.ContainerID = r.name + "://" + status.GetId()
		out.ImageID = status.GetImageRef()
		switch {
		case started:
			out.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(nano(status.GetStartedAt()))}
		case c.newest.exited():
			if r.ended || r.stopping != nil || !r.wants(c) || c.failure == nil && c.image.failure == nil {
				out.State.Terminated = r.terminated(c.newest)
			} else {
				last = c.newest
			}
		}
	}
	if out.State == (corev1.ContainerState{}) {
		out.State.Waiting = waiting(c)
	}
	if last.exited() {
		out.LastTerminationState.Terminated = r.terminated(last)
	}
	return out
}

func waiting(c *container) *corev1.ContainerStateWaiting {
	for _, why := range []*failure{c.image.failure, c.failure} {
		if why != nil {
			return &corev1.ContainerStateWaiting{Reason: why.reason, Message: why.message}
		}
	}
	return &corev1.ContainerStateWaiting{Reason: reasonCreating}
}

func (r *run) terminated(i *instance) *corev1.ContainerStateTerminated {
	status := i.status
	reason := status.GetReason()
	if reason == "" {
		reason = "Completed"
		if status.GetExitCode() != 0 {
			reason = "Error"
		}
	}
	return &corev1.ContainerStateTerminated{
		ExitCode:    status.GetExitCode(),
		Reason:      reason,
		Message:     status.GetMessage(),
		StartedAt:   metav1.NewTime(nano(status.GetStartedAt())),
		FinishedAt:  metav1.NewTime(nano(status.GetFinishedAt())),
		ContainerID: r.name + "://" + status.GetId(),
	}
}

// phase follows from the containers; an end is told only when the machine is gone.
func (r *run) phase(containers []corev1.ContainerStatus) corev1.PodPhase {
	if r.ended {
		for _, c := range containers {
			if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
				return corev1.PodFailed
			}
		}
		if r.fatal != nil {
			return corev1.PodFailed
		}
		return corev1.PodSucceeded
	}
	for _, c := range containers {
		if c.State.Waiting != nil && c.LastTerminationState.Terminated == nil {
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}

// conditions keep the time of their last change.
func (r *run) conditions(status *corev1.PodStatus) []corev1.PodCondition {
	var unready []string
	for _, c := range status.ContainerStatuses {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	readiness := corev1.PodCondition{Status: corev1.ConditionTrue}
	switch {
	case status.Phase == corev1.PodSucceeded:
		readiness = corev1.PodCondition{Status: corev1.ConditionFalse, Reason: "PodCompleted"}
	case status.Phase == corev1.PodFailed:
		readiness = corev1.PodCondition{Status: corev1.ConditionFalse, Reason: "PodFailed"}
	case len(unready) > 0:
		readiness = corev1.PodCondition{
			Status: corev1.ConditionFalse, Reason: "ContainersNotReady",
			Message: "containers with unready status: [" + strings.Join(unready, " ") + "]",
		}
	}
	initialized := corev1.PodCondition{Status: corev1.ConditionTrue}
	if status.Phase == corev1.PodSucceeded {
		initialized.Reason = "PodCompleted"
	}
	sandbox := corev1.PodCondition{Status: corev1.ConditionFalse}
	if r.ready() && !r.ended {
		sandbox.Status = corev1.ConditionTrue
	}
	var out []corev1.PodCondition
	for _, entry := range []struct {
		kind      corev1.PodConditionType
		condition corev1.PodCondition
	}{
		{corev1.PodReadyToStartContainers, sandbox},
		{corev1.PodInitialized, initialized},
		{corev1.PodReady, readiness},
		{corev1.ContainersReady, readiness},
		{corev1.PodScheduled, corev1.PodCondition{Status: corev1.ConditionTrue}},
	} {
		condition := entry.condition
		condition.Type = entry.kind
		condition.LastTransitionTime = metav1.NewTime(time.Now())
		for _, before := range r.last.Conditions {
			if before.Type == condition.Type && before.Status == condition.Status {
				condition.LastTransitionTime = before.LastTransitionTime
			}
		}
		out = append(out, condition)
	}
	return out
}

// nano is the time of a CRI time stamp; 0 is the zero time.
func nano(stamp int64) time.Time {
	if stamp == 0 {
		return time.Time{}
	}
	return time.Unix(0, stamp)
}
