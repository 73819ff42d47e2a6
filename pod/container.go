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

// container is one container of the pod, with its instances.
type container struct {
	kind     podspec.Kind
	spec     *corev1.Container
	target   string         // the name of the container in which an ephemeral one sees the processes
	size     runtimev1.Size // size of its terminal at the start; zero is the pod's size
	image    imageState
	newest   *instance.Instance
	previous *instance.Instance
	restart  backoff.Backoff
	end      sighting
	resumed  bool // restart was restored from the instances that existed before this Run
	tried    bool // a first start was attempted
	failure  *failure
	retry    backoff.Backoff

	hook    *hookRun // the running postStart hook; nil for none
	killing string   // id of the instance that is being stopped
	ours    string   // id of the instance that this Run started itself
	failing string   // id of the instance that must end because of a probe or an earlier Run
	preStop *preStop // the last preStop hook; nil for none

	has      *corev1.ResourceRequirements // its actual resources; nil while they equal spec
	replaced string                       // id of the instance that is being stopped for a resize or a new image
}

// sighting is the end of an instance on the monotonic clock, which clock changes do not move.
type sighting struct {
	id string
	at time.Time
}

// endedAt returns when c's newest instance ended. The first call for an instance computes the time, relative to now,
// and later calls return the same one. So a clock that is set back does not delay the restart.
func (c *container) endedAt(now time.Time) time.Time {
	if id := c.newest.ID(); c.end.id != id {
		ago := now.Sub(instance.Time(c.newest.Status.GetFinishedAt()))
		c.end = sighting{id, now.Add(-max(ago, 0))}
	}
	return c.end.at
}

// containersOf returns the pod's containers in their start order.
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

// of returns the containers of these kinds, in order.
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

// running reports whether c runs in the pod's current sandbox.
func (r *run) running(c *container) bool {
	return r.hasInstance(c) && c.newest.Status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// hasInstance reports whether c has an instance in the current sandbox.
func (r *run) hasInstance(c *container) bool {
	return c.newest != nil && r.ready() && c.newest.Sandbox == r.sandbox.GetId()
}

// ready reports whether the pod's sandbox is up.
func (r *run) ready() bool {
	return r.sandbox != nil && r.sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
}

// outcome returns the exit code of c's newest instance. An instance that neither runs nor has a known end counts as
// failed.
func (r *run) outcome(c *container) (code int32, ended bool) {
	switch {
	case c.newest == nil || c.newest.Created() || r.running(c):
		return 0, false
	case c.newest.Exited() && c.newest.Status.GetExitCode() == 0 && c.failing == c.newest.ID():
		return podstatus.CodeLost, true // it stopped because a probe failed, so it is not done
	case c.newest.Exited():
		return c.newest.Status.GetExitCode(), true
	}
	return podstatus.CodeLost, true
}
