package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

func (r *view) containerStatus(c *container) corev1.ContainerStatus {
	out := corev1.ContainerStatus{Name: c.Spec.Name, Image: c.Spec.Image, Ready: r.IsReady(c)}
	if c.Kind != podspec.Ephemeral {
		out.Started = new(r.Started(c))
	}
	out.AllocatedResources, out.Resources = r.resourcesOf(c)
	out.VolumeMounts = config.MountStatuses(c.Spec)
	last := c.Previous
	if c.Newest != nil {
		status := c.Newest.Status
		out.RestartCount = c.Newest.Restarts
		out.ContainerID = r.name + "://" + status.GetId()
		out.ImageID = status.GetImageRef()
		out.StopSignal = stopSignalOf(status)
		out.User = userOf(status)
		switch {
		case r.Running(c):
			if c.Outdated() {
				out.Image = status.GetImage().GetImage()
			}
			out.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(instance.Time(status.GetStartedAt()))}
		case c.Newest.Exited():
			if r.Ended || r.Stopping != nil || !r.Wants(c) || c.Failure == nil && c.Image.Failure == nil {
				out.State.Terminated = r.terminated(c.Newest)
			} else {
				last = c.Newest
			}
		}
	}
	if out.State == (corev1.ContainerState{}) {
		out.State.Waiting = r.waiting(c)
	}
	if last.Exited() {
		out.LastTerminationState.Terminated = r.terminated(last)
	}
	return out
}

func (r *view) waiting(c *container) *corev1.ContainerStateWaiting {
	for _, why := range []*plan.Failure{c.Image.Failure, c.Failure, r.imageFailure(c)} {
		if why != nil {
			return &corev1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}
		}
	}
	reason := ReasonCreating
	if len(r.Pod.Spec.InitContainers) > 0 {
		reason = reasonInitializing
	}
	return &corev1.ContainerStateWaiting{Reason: reason}
}

func (r *view) terminated(i *instance.Instance) *corev1.ContainerStateTerminated {
	status := i.Status
	reason := status.GetReason()
	if reason == "" {
		reason = "Completed"
		if status.GetExitCode() != 0 {
			reason = "Error"
		}
	}
	message := status.GetMessage()
	// A container that never ran has no last words.
	if words := r.words[i.ID()]; words != "" && reason != runtimev1.ReasonStart {
		if message != "" {
			message += ": "
		}
		message += words
	}
	return &corev1.ContainerStateTerminated{
		ExitCode:    status.GetExitCode(),
		Reason:      reason,
		Message:     message,
		StartedAt:   metav1.NewTime(instance.Time(status.GetStartedAt())),
		FinishedAt:  metav1.NewTime(instance.Time(status.GetFinishedAt())),
		ContainerID: r.name + "://" + status.GetId(),
	}
}

// stopSignalOf returns the container's stop signal, nil if the runtime does not report it.
func stopSignalOf(status *runtimeapi.ContainerStatus) *corev1.Signal {
	if status.GetStopSignal() == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	return new(config.Signal(status.GetStopSignal()))
}

// userOf returns the user of the container's first process, nil if the runtime does not report it.
func userOf(status *runtimeapi.ContainerStatus) *corev1.ContainerUser {
	user := status.GetUser().GetLinux()
	if user == nil {
		return nil
	}
	return &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
		UID: user.GetUid(), GID: user.GetGid(), SupplementalGroups: slices.Clone(user.GetSupplementalGroups()),
	}}
}
