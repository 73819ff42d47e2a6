package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kind is what a container is to its pod; when it is started, whether again,
// and when it is ended follow from it.
type kind int

const (
	// regular ones are what the pod is for: it lasts as long as one of them has
	// something to do.
	regular kind = iota
	// initial ones run to their end, one after the other, before any regular.
	initial
	// sidecar ones are started among the initial, run beside the regular and
	// are ended after them.
	sidecar
	// ephemeral ones are added to a pod that runs, and started once.
	ephemeral
)

// container is one container of the pod with its instances.
type container struct {
	kind     kind
	spec     *corev1.Container
	target   string // of an ephemeral one: whose processes it is to see
	image    imageState
	newest   *instance
	previous *instance
	restart  backoff
	end      sighting
	resumed  bool // restart was rebuilt from what was taken over
	tried    bool // the first attempt to start it has been made
	failure  *failure
	retry    backoff

	hook    *hookRun // the postStart hook that runs, nil for none
	killing string   // the id of the instance that is being ended
	ours    string   // the id of the instance that was started here, and not taken over
	failing string   // the id of the instance that a probe wants ended, or an earlier Run
	preStop *preStop // the last preStop hook, nil for none

	has      *corev1.ResourceRequirements // what it really has; nil while that is what spec says
	replaced string                       // the id of the instance that is ended for a resize
}

// instance is one CRI container.
type instance struct {
	sandbox  string
	restarts int32
	status   *runtimeapi.ContainerStatus
}

// id is empty for none.
func (i *instance) id() string {
	if i == nil {
		return ""
	}
	return i.status.GetId()
}

// exited tells whether i, which may be nil, is known to have ended.
func (i *instance) exited() bool {
	return i != nil && i.status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
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
	if id := c.newest.id(); c.end.id != id {
		ago := now.Sub(nano(c.newest.status.GetFinishedAt()))
		c.end = sighting{id, now.Add(-max(ago, 0))}
	}
	return c.end.at
}

// created tells whether i was made and never started.
func (i *instance) created() bool {
	return i != nil && i.status.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED
}

// containersOf are the pod's containers in the order in which they are started.
func containersOf(pod *corev1.Pod) []*container {
	var out []*container
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		out = append(out, &container{kind: initKind(spec), spec: spec})
	}
	for i := range pod.Spec.Containers {
		out = append(out, &container{kind: regular, spec: &pod.Spec.Containers[i]})
	}
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, newEphemeral(&pod.Spec.EphemeralContainers[i]))
	}
	return out
}

// initKind tells a sidecar from a container that runs to its end.
func initKind(spec *corev1.Container) kind {
	if spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		return sidecar
	}
	return initial
}

func newEphemeral(spec *corev1.EphemeralContainer) *container {
	common := corev1.Container(spec.EphemeralContainerCommon)
	return &container{kind: ephemeral, spec: &common, target: spec.TargetContainerName}
}

// of are the containers of these kinds, in their order.
func (r *run) of(kinds ...kind) []*container {
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
	return r.begun(c) && c.newest.status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// begun tells whether c has an instance in the sandbox that is up.
func (r *run) begun(c *container) bool {
	return c.newest != nil && r.ready() && c.newest.sandbox == r.sandbox.GetId()
}

// ready tells whether the pod's sandbox is up.
func (r *run) ready() bool {
	return r.sandbox != nil && r.sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
}

// codeLost is the exit code of a container whose machine ended under it.
const codeLost = 137

// outcome is how c's newest instance ended. What is neither here nor known to
// have ended has failed.
func (r *run) outcome(c *container) (code int32, ended bool) {
	switch {
	case c.newest == nil || c.newest.created() || r.running(c):
		return 0, false
	case c.newest.exited() && c.newest.status.GetExitCode() == 0 && c.failing == c.newest.id():
		return codeLost, true // it obeyed, and is not done
	case c.newest.exited():
		return c.newest.status.GetExitCode(), true
	}
	return codeLost, true
}
