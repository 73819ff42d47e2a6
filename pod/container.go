package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// container is one container of the pod with its instances.
type container struct {
	kind     podspec.Kind
	spec     *corev1.Container
	target   string         // of an ephemeral one: whose processes it is to see
	size     runtimev1.Size // of its terminal at the start; zero is the pod's
	image    imageState
	newest   *instance.Instance
	previous *instance.Instance
	restart  backoff.Backoff
	end      sighting
	resumed  bool // restart was rebuilt from what was taken over
	tried    bool // the first attempt to start it has been made
	failure  *failure
	retry    backoff.Backoff

	hook    *hookRun // the postStart hook that runs, nil for none
	killing string   // the id of the instance that is being ended
	ours    string   // the id of the instance that was started here, and not taken over
	failing string   // the id of the instance that a probe wants ended, or an earlier Run
	preStop *preStop // the last preStop hook, nil for none

	has      *corev1.ResourceRequirements // what it really has; nil while that is what spec says
	replaced string                       // the id of the instance that is ended for a resize
}

// sighting is when an instance has ended, in the time that no setting of the
// clock moves.
type sighting struct {
	id string
	at time.Time
}

// endedAt is when c's newest instance has ended, which is seen for the first time
// at now or was before: a clock that is set back must not put off its restart.
func (c *container) endedAt(now time.Time) time.Time {
	if id := c.newest.ID(); c.end.id != id {
		ago := now.Sub(instance.Time(c.newest.Status.GetFinishedAt()))
		c.end = sighting{id, now.Add(-max(ago, 0))}
	}
	return c.end.at
}

// containersOf are the pod's containers in the order in which they are started.
func containersOf(pod *corev1.Pod) []*container {
	var out []*container
	for spec, kind := range podspec.All(&pod.Spec) {
		out = append(out, &container{kind: kind, spec: spec})
	}
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, newEphemeral(&pod.Spec.EphemeralContainers[i]))
	}
	return out
}

func newEphemeral(spec *corev1.EphemeralContainer) *container {
	common := corev1.Container(spec.EphemeralContainerCommon)
	return &container{kind: podspec.Ephemeral, spec: &common, target: spec.TargetContainerName}
}

// of are the containers of these kinds, in their order.
func (r *run) of(kinds ...podspec.Kind) []*container {
	var out []*container
	for _, c := range r.containers {
		for _, k := range kinds {
			if c.kind == k {
				out = append(out, c)
			}
		}
	}
	return out
}

// running tells whether c runs in the pod's sandbox.
func (r *run) running(c *container) bool {
	return r.begun(c) && c.newest.Status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// begun tells whether c has an instance in the sandbox that is up.
func (r *run) begun(c *container) bool {
	return c.newest != nil && r.ready() && c.newest.Sandbox == r.sandbox.GetId()
}

// ready tells whether the pod's sandbox is up.
func (r *run) ready() bool {
	return r.sandbox != nil && r.sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
}

// outcome is how c's newest instance ended. What is neither here nor known to
// have ended has failed.
func (r *run) outcome(c *container) (code int32, ended bool) {
	switch {
	case c.newest == nil || c.newest.Created() || r.running(c):
		return 0, false
	case c.newest.Exited() && c.newest.Status.GetExitCode() == 0 && c.failing == c.newest.ID():
		return podstatus.CodeLost, true // it obeyed, and is not done
	case c.newest.Exited():
		return c.newest.Status.GetExitCode(), true
	}
	return podstatus.CodeLost, true
}
