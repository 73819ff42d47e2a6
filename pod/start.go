package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/images"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/launch"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// The kubelet's reasons for a waiting container.
const (
	// ReasonCreating is the reason of a container that has not been started.
	ReasonCreating = "ContainerCreating"

	reasonInitializing = "PodInitializing"
	reasonCrashLoop    = "CrashLoopBackOff"
	reasonPostStart    = "PostStartHookError"
)

// starting is the start of one container, which runs beside the loop. A pod has one at a time. The loop does not
// observe the container's instances before the start has ended.
type starting struct {
	c       *container
	sandbox string
	image   *images.Image // of the new instance
	began   time.Time
	giveUp  context.CancelCauseFunc
}

// isStarting reports whether a start of c is running.
func (r *run) isStarting(c *container) bool { return r.starting != nil && r.starting.c == c }

// giveUpStart cancels the running start, which undoes its work. It reports whether there is one.
func (r *run) giveUpStart() bool {
	if r.starting == nil {
		return false
	}
	r.starting.giveUp(launch.ErrGivenUp)
	return true
}

// start starts to create and start the next instance of c, beside the loop.
func (r *run) start(runCtx context.Context, c *container) {
	restarts, stale := int32(0), ""
	switch {
	case c.newest.Exited():
		restarts = c.newest.Restarts + 1
	case c.newest != nil:
		// It was created and never started, or lost: it does not count as a restart.
		restarts, stale = c.newest.Restarts, c.newest.ID()
	}
	target, err := r.targetOf(c)
	if err != nil {
		r.failed(c, launch.ReasonConfig, err)
		return
	}
	image := c.image.image
	options := r.o.Options
	if c.size != (runtimev1.Size{}) {
		options.Size = c.size
	}
	l := &launch.Launch{
		Runtime: r.o.Runtime, Options: options, Container: c.spec.DeepCopy(),
		Sandbox: r.sandbox.GetId(), Attempt: r.sandbox.GetMetadata().GetAttempt(),
		Config: config.Launch{
			Image: image.Image, Ref: image.Ref, Restarts: restarts, IPs: r.ips(), Target: target, Images: r.imageRefs(),
		},
		Stale: stale,
	}
	l.Options.Pod = r.pod.DeepCopy()
	l.Allocatable = func(ctx context.Context) (corev1.ResourceList, error) {
		return r.allocatable(ctx, l.Options.Pod, l.Sandbox)
	}
	giveUpCtx, giveUp := context.WithCancelCause(runCtx)
	ctx, cancel := context.WithTimeout(giveUpCtx, containerDeadline)
	s := &starting{c: c, sandbox: l.Sandbox, image: image, began: time.Now(), giveUp: giveUp}
	r.starting = s
	r.beside(runCtx, func() func() {
		result := l.Run(ctx)
		given := errors.Is(context.Cause(ctx), launch.ErrGivenUp)
		cancel()
		giveUp(nil)
		return func() { r.launched(runCtx, s, restarts, given, &result) }
	})
}

// launched records the outcome of a start.
func (r *run) launched(ctx context.Context, s *starting, restarts int32, given bool, result *launch.Result) {
	c := s.c
	r.starting = nil
	if c.image.image == s.image && (c.spec.ImagePullPolicy == corev1.PullAlways || restarts > 0) {
		c.image = imageState{} // looked up again before the next start
	}
	if given {
		return // the next observation finds the containers
	}
	for _, e := range result.Events {
		// If the pod fails fast, Run returns the error, and no event repeats it.
		if result.Err == nil || !e.Warning || !r.p.failsFast() {
			r.report(Event{Time: e.Time, Warning: e.Warning, Reason: e.Reason, Container: c.spec.Name, Message: e.Message})
		}
	}
	if c.newest.Exited() {
		c.restart.Next(c.endedAt(s.began), s.began)
	}
	c.ours = result.ID
	if result.Status != nil {
		if c.newest.Exited() {
			c.previous = c.newest
		}
		c.newest = &instance.Instance{Sandbox: s.sandbox, Restarts: restarts, Status: result.Status}
		c.resumed = true
	}
	if result.Err != nil {
		if result.Reason == launch.ReasonCreate && instance.Gone(result.Err) {
			r.forgetImages(c)
		}
		r.failed(c, result.Reason, result.Err)
		return
	}
	c.failure, c.retry = nil, backoff.Backoff{}
	if r.running(c) { // it may have ended already
		r.postStart(ctx, c)
	}
}

// targetOf returns the id of the container in which c sees the processes, empty for none.
func (r *run) targetOf(c *container) (string, error) {
	if c.target == "" {
		return "", nil
	}
	for _, other := range r.containers {
		if other.spec.Name == c.target && r.running(other) {
			return other.newest.ID(), nil
		}
	}
	return "", fmt.Errorf("target container %q is not running", c.target)
}

// failed records why c did not start, and schedules a retry.
func (r *run) failed(c *container, reason string, err error) {
	c.failure = &failure{reason: reason, message: err.Error(), at: time.Now()}
	c.retry.Next(c.failure.at, c.failure.at)
	r.at(c.retry.Until(c.failure.at))
	if c.kind == podspec.Ephemeral {
		r.event(c, true, "Failed", err.Error())
		return
	}
	if c.newest.Exited() && !r.wants(c) {
		// The container's last end is known, with its exit code.
		if !r.p.failsFast() {
			r.event(c, true, "Failed", err.Error())
		}
		return
	}
	if !r.fail(ErrStart, fmt.Errorf("container %s: %w", c.spec.Name, err)) {
		r.event(c, true, "Failed", err.Error())
	}
}

// fail ends the pod with err if the pod fails fast, and reports whether it does. Run then returns the error, without an
// event.
func (r *run) fail(class, err error) bool {
	if !r.p.failsFast() || r.up() {
		return false
	}
	if r.fatal == nil { // keep the first cause
		r.fatal = fmt.Errorf("pod %s: %w: %w", r.pod.Name, class, err)
	}
	return true
}

// up reports whether every container but the ephemeral ones has run at least once.
func (r *run) up() bool {
	for _, c := range r.of(podspec.Initial, podspec.Sidecar, podspec.Regular) {
		if c.newest == nil || c.newest.Restarts == 0 && c.newest.Status.GetStartedAt() == 0 {
			return false
		}
	}
	return true
}
