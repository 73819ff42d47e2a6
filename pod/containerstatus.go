package pod

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (r *run) containerStatus(c *container) corev1.ContainerStatus {
	out := corev1.ContainerStatus{Name: c.spec.Name, Image: c.spec.Image, Ready: r.isReady(c)}
	if c.kind != ephemeral {
		out.Started = new(r.started(c))
	}
	out.AllocatedResources, out.Resources = r.resourcesOf(c)
	out.VolumeMounts = mountStatuses(c.spec)
	last := c.previous
	if c.newest != nil {
		status := c.newest.status
		out.RestartCount = c.newest.restarts
		out.ContainerID = r.name + "://" + status.GetId()
		out.ImageID = status.GetImageRef()
		out.StopSignal = stopSignalOf(status)
		switch {
		case r.running(c):
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
		out.State.Waiting = r.waiting(c)
	}
	if last.exited() {
		out.LastTerminationState.Terminated = r.terminated(last)
	}
	return out
}

func (r *run) waiting(c *container) *corev1.ContainerStateWaiting {
	for _, why := range []*failure{c.image.failure, c.failure, r.imageFailure(c)} {
		if why != nil {
			return &corev1.ContainerStateWaiting{Reason: why.reason, Message: why.message}
		}
	}
	if len(r.pod.Spec.InitContainers) > 0 {
		return &corev1.ContainerStateWaiting{Reason: reasonInitializing}
	}
	return &corev1.ContainerStateWaiting{Reason: ReasonCreating}
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
	message := status.GetMessage()
	if words := r.words[i.id()]; words != "" {
		if message != "" {
			message += ": "
		}
		message += words
	}
	return &corev1.ContainerStateTerminated{
		ExitCode:    status.GetExitCode(),
		Reason:      reason,
		Message:     message,
		StartedAt:   metav1.NewTime(nano(status.GetStartedAt())),
		FinishedAt:  metav1.NewTime(nano(status.GetFinishedAt())),
		ContainerID: r.name + "://" + status.GetId(),
	}
}

// endAll has no container of a pod that has ended wait for a start, as far as the
// pod had come: those that had no turn yet wait as they did. As the kubelet has it,
// what is not known to have ended well has failed.
func endAll(spec *corev1.PodSpec, status *corev1.PodStatus) {
	unknown := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated", ExitCode: codeLost,
	}}
	end := func(list []corev1.ContainerStatus) {
		for i := range list {
			if list[i].State.Terminated == nil {
				list[i].State = unknown
			}
		}
	}
	if initialized(spec, status).status == corev1.ConditionTrue {
		end(status.ContainerStatuses)
	}
	inits := status.InitContainerStatuses
	for last := len(inits) - 1; last >= 0; last-- {
		if inits[last].State.Waiting == nil || inits[last].LastTerminationState.Terminated != nil || last == 0 {
			end(inits[:last+1])
			break
		}
	}
}

// stopSignalOf is the signal that asks the container to end, as the runtime
// tells it; nil where it does not.
func stopSignalOf(status *runtimeapi.ContainerStatus) *corev1.Signal {
	if status.GetStopSignal() == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	return new(fromCRISignal(status.GetStopSignal()))
}
