package state

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// hold is how long a pod must be ready to count as up, if a container has no readiness probe. Such a container is
// ready as soon as it starts, even if it ends at once.
const hold = time.Second

// Up determines when a pod is up. The zero value is ready to use. It is not safe for concurrent use.
type Up struct {
	since    time.Time // when the pod became ready, zero while it is not
	restarts int32
}

// Left returns how long the pod must stay ready to count as up. ready is false if the pod is not ready.
func (u *Up) Left(p *corev1.Pod, status corev1.PodStatus, now time.Time) (left time.Duration, ready bool) {
	ready = slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if !ready {
		u.since = time.Time{}
		return 0, false
	}
	probed := !slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.ReadinessProbe == nil })
	restarts := podstatus.Restarts(&p.Spec, &status)
	if u.since.IsZero() || restarts != u.restarts {
		u.since, u.restarts = now, restarts
	}
	if probed {
		return 0, true
	}
	return hold - now.Sub(u.since), true
}

// Crashing describes a container that ends repeatedly, nil if there is none.
func Crashing(p *corev1.Pod, status corev1.PodStatus) *api.Ended {
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		end, waits := c.LastTerminationState.Terminated, c.State.Waiting
		if end == nil || waits == nil || waits.Reason != crashLoop {
			continue
		}
		out := &api.Ended{
			Pod: p.Name, Phase: string(status.Phase), ExitCode: runtimev1.CommandCode(end.Reason, end.Message, end.ExitCode), Reason: crashLoop,
			Message: fmt.Sprintf("container %s has ended %d times, with code %d the last time (bulkhead logs -c %[1]s %[4]s)",
				c.Name, c.RestartCount+1, end.ExitCode, p.Name),
		}
		if out.ExitCode == 0 {
			out.ExitCode = 1
			out.Message += "; if it is meant to end, set restartPolicy to OnFailure or Never"
		}
		return out
	}
	return nil
}

// crashLoop is the kubelet's reason for a container that waits for its next restart.
const crashLoop = "CrashLoopBackOff"
