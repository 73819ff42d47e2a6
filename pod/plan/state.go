package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/images"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// State is the specification, the last observation and the progress of the actions of one pod. Plan reads it. The
// pod's loop changes it.
type State struct {
	Pod        *corev1.Pod
	Began      time.Time // the pod's start
	Deadline   time.Time // the pod's latest end; zero for none
	Containers []*Container
	Turn       Turn

	Sandbox    *runtimeapi.PodSandboxStatus // newest; nil before there is one
	SandboxErr error                        // why the last creation failed
	SandboxTry Try
	Busy       bool   // a call about the sandbox is running
	Dead       string // the dead sandbox that was stopped
	Claims     Claims
	Files      Files
	Images     map[string]*Image // of the volumes that are images, by volume name
	Starting   *Starting         // nil when no container is being started
	Resize     Resize

	Wanted   *time.Duration // the grace of the newest request to stop; nil for none
	Stopping *time.Duration // the grace of the request that is being carried out
	Stopped  bool           // all containers have been stopped for it
	Fatal    error          // why FailFast ends the pod
	Expired  bool           // the deadline has passed
	Ended    bool
}

// Turn is the state of a pod's wait for its turn.
type Turn struct {
	Awaited  bool // it has not come
	Reported bool // the wait was reported
	Never    bool // it will not come
}

// Claims is the state of the pod's claims for the next sandbox.
type Claims struct {
	Mounted bool      // or the pod has none
	Retry   time.Time // of a failed mount; zero for none
}

// Files is the state of the pod's volumes of files.
type Files struct {
	Needed  bool // the pod has such volumes
	Written bool
	Writing bool
	Stale   bool // the objects have changed since the last write
	Try
}

// Starting is the start of one container. A pod has one at a time, and does not observe the container's instances
// before it has ended.
type Starting struct {
	*Container
	Sandbox string
	Image   *images.Image // of the new instance
	Began   time.Time
}

// Of returns the containers of these kinds, in order.
func (s *State) Of(kinds ...podspec.Kind) []*Container {
	var out []*Container
	for _, c := range s.Containers {
		if slices.Contains(kinds, c.Kind) {
			out = append(out, c)
		}
	}
	return out
}

// Ready reports whether the pod's sandbox is up.
func (s *State) Ready() bool {
	return s.Sandbox != nil && s.Sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
}

// Running reports whether c runs in the pod's current sandbox.
func (s *State) Running(c *Container) bool {
	return s.hasInstance(c) && c.Newest.Status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// hasInstance reports whether c has an instance in the current sandbox.
func (s *State) hasInstance(c *Container) bool {
	return c.Newest != nil && s.Ready() && c.Newest.Sandbox == s.Sandbox.GetId()
}

// Started reports whether c runs, its postStart hook has succeeded and its startup probe has succeeded.
func (s *State) Started(c *Container) bool {
	return s.Running(c) && !c.Hooked && c.Killing != c.Newest.ID() && (c.Spec.StartupProbe == nil || c.Verdict.Started)
}

// IsReady reports whether c is ready. An init container is ready when it has succeeded, any other when it serves.
func (s *State) IsReady(c *Container) bool {
	switch c.Kind {
	case podspec.Initial:
		return c.Newest.Exited() && c.Newest.Status.GetExitCode() == 0
	case podspec.Ephemeral:
		return false
	}
	return s.Started(c) && (c.Spec.ReadinessProbe == nil || c.Verdict.Ready)
}

// outcome returns the exit code of c's newest instance. An instance that neither runs nor has a known end counts as
// failed.
func (s *State) outcome(c *Container) (code int32, ended bool) {
	switch {
	case c.Newest == nil || c.Newest.Created() || s.Running(c):
		return 0, false
	case c.Newest.Exited() && c.Newest.Status.GetExitCode() == 0 && c.Failing == c.Newest.ID():
		return podstatus.CodeLost, true // it stopped because a probe failed, so it is not done
	case c.Newest.Exited():
		return c.Newest.Status.GetExitCode(), true
	}
	return podstatus.CodeLost, true
}

// restarted reports whether c is started again after an end with code.
func (s *State) restarted(c *Container, code int32) bool {
	var before int32 // restarts of the pod's initial and regular containers
	for _, c := range s.Of(podspec.Initial, podspec.Regular) {
		if c.Newest != nil {
			before += c.Newest.Restarts
		}
	}
	return podspec.Restarts(s.Pod, c.Kind, c.Spec, code, before)
}

// due returns when the pod must end, zero for never.
func (s *State) due() time.Time {
	due := s.Deadline
	if seconds := s.Pod.Spec.ActiveDeadlineSeconds; seconds != nil && !s.Turn.Awaited {
		own := s.Began.Add(time.Duration(*seconds) * time.Second)
		if due.IsZero() || own.Before(due) {
			due = own
		}
	}
	return due
}

// Container is one container of the pod, with its instances.
type Container struct {
	Kind     podspec.Kind
	Spec     *corev1.Container
	Target   string         // the name of the container in which an ephemeral one sees the processes
	Size     runtimev1.Size // size of its terminal at the start; zero is the pod's size
	Image    Image
	Newest   *instance.Instance
	Previous *instance.Instance
	Restart  backoff.Backoff
	Resumed  bool // Restart was restored from the instances that existed before this Run
	Tried    bool // a first start was attempted
	Try
	Verdict probe.Verdict // of the probes of the newest instance

	Hooked  bool   // its postStart hook runs
	Killing string // id of the instance that is being stopped
	Ours    string // id of the instance that this Run started itself
	Failing string // id of the instance that must end because of a probe or an earlier Run

	Has      *corev1.ResourceRequirements // its actual resources; nil while they equal Spec
	Replaced string                       // id of the instance that is being stopped for a resize or a new image

	end sighting
}

// Image is the state of a wanted image. Each start of a container begins with a new one.
type Image struct {
	Pulling bool
	Found   *images.Image // nil until the image is present
	Try
}

// Wanted is a wanted image, for a container or (Container is nil) a volume.
type Wanted struct {
	*Image
	Container *Container
	Name      string
	Policy    corev1.PullPolicy
}

// Wanted returns the image of c.
func (c *Container) Wanted() Wanted { return Wanted{&c.Image, c, c.Spec.Image, c.Spec.ImagePullPolicy} }

// Try is a step that is tried again with growing pauses while it fails.
type Try struct {
	Failure *Failure
	Retry   backoff.Backoff
}

// Fail records a failure at now.
func (t *Try) Fail(reason, message string, now time.Time) {
	t.Failure = &Failure{Reason: reason, Message: message, At: now}
	t.Retry.Next(now, now)
}

// due returns when the step may be tried, the zero time if it has not failed.
func (t *Try) due() time.Time {
	if t.Failure == nil {
		return time.Time{}
	}
	return t.Retry.Until(t.Failure.At)
}

// Failure is the reason that a container waits.
type Failure struct {
	Reason, Message string
	At              time.Time
}

// sighting is the end of an instance on the monotonic clock, which clock changes do not move.
type sighting struct {
	id string
	at time.Time
}

// NewEphemeral returns an ephemeral container.
func NewEphemeral(spec *corev1.EphemeralContainer) *Container {
	common := corev1.Container(spec.EphemeralContainerCommon)
	return &Container{Kind: podspec.Ephemeral, Spec: &common, Target: spec.TargetContainerName}
}

// Containers returns the pod's containers in their start order.
func Containers(spec *corev1.PodSpec) []*Container {
	var out []*Container
	for c, kind := range podspec.All(spec) {
		out = append(out, &Container{Kind: kind, Spec: c})
	}
	for i := range spec.EphemeralContainers {
		out = append(out, NewEphemeral(&spec.EphemeralContainers[i]))
	}
	return out
}

// Sight notes the end of the newest instance relative to now, if it has ended. Later calls for the instance change
// nothing. So a clock that is set back does not delay the restart.
func (c *Container) Sight(now time.Time) {
	if id := c.Newest.ID(); c.Newest.Exited() && c.end.id != id {
		ago := now.Sub(instance.Time(c.Newest.Status.GetFinishedAt()))
		c.end = sighting{id, now.Add(-max(ago, 0))}
	}
}

// EndedAt returns when the newest instance ended, as noted by Sight.
func (c *Container) EndedAt() time.Time { return c.end.at }

// Instances returns the newest instance and the one before it, as far as they exist.
func (c *Container) Instances() []*instance.Instance {
	return slices.DeleteFunc([]*instance.Instance{c.Newest, c.Previous}, func(i *instance.Instance) bool { return i == nil })
}

// Outgoing reports whether the newest instance is being stopped for a resize or a new image.
func (c *Container) Outgoing() bool { return c.Replaced != "" && c.Replaced == c.Newest.ID() }
