package pod

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/launch"
	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// The kubelet's reasons for a waiting container.
const (
	// ReasonCreating is the reason of a container that has not been started.
	ReasonCreating = "ContainerCreating"

	reasonInitializing = "PodInitializing"
	reasonPostStart    = "PostStartHookError"
)

// start starts to create and start the next instance of c, beside the loop.
func (r *run) start(runCtx context.Context, c *container) {
	restarts, stale := int32(0), ""
	switch {
	case c.Newest.Exited():
		restarts = c.Newest.Restarts + 1
	case c.Newest != nil:
		// It was created and never started, or lost: it does not count as a restart.
		restarts, stale = c.Newest.Restarts, c.Newest.ID()
	}
	image := c.Image.Found
	options := r.o.Options
	if c.Size != (runtimev1.Size{}) {
		options.Size = c.Size
	}
	l := &launch.Launch{
		Runtime: r.o.Runtime, Options: options, Container: c.Spec.DeepCopy(),
		Sandbox: r.Sandbox.GetId(), Attempt: r.Sandbox.GetMetadata().GetAttempt(),
		Config: config.Launch{
			Image: image.Image, Ref: image.Ref, Restarts: restarts, IPs: r.ips(), Target: r.Target(c), Images: r.imageRefs(),
		},
		Stale: stale,
	}
	l.Options.Pod = r.Pod.DeepCopy()
	l.Allocatable = func(ctx context.Context) (corev1.ResourceList, error) {
		return r.allocatable(ctx, l.Options.Pod, l.Sandbox)
	}
	r.Starting = &plan.Starting{Container: c, Sandbox: l.Sandbox, Image: image, Began: time.Now()}
	var result launch.Result
	r.try(runCtx, plan.Start, containerDeadline, func(ctx context.Context) error {
		result = l.Run(ctx)
		return result.Err
	}, func(_ error, given bool) { r.launched(runCtx, restarts, given, &result) })
}

// launched records the outcome of a start.
func (r *run) launched(ctx context.Context, restarts int32, given bool, result *launch.Result) {
	s := r.Starting
	c := s.Container
	r.Starting = nil
	if c.Image.Found == s.Image && (c.Spec.ImagePullPolicy == corev1.PullAlways || restarts > 0) {
		c.Image = plan.Image{} // looked up again before the next start
	}
	if given {
		return // the next observation finds the containers
	}
	for _, e := range result.Events {
		// If the pod fails fast, Run returns the error, and no event repeats it.
		if result.Err == nil || !e.Warning || !r.p.failsFast() {
			r.report(e)
		}
	}
	if c.Newest.Exited() {
		c.Restart.Next(c.EndedAt(), s.Began)
	}
	c.Ours = result.ID
	if result.Status != nil {
		if c.Newest.Exited() {
			c.Previous = c.Newest
		}
		c.Newest = &instance.Instance{Sandbox: s.Sandbox, Restarts: restarts, Status: result.Status}
		c.Resumed = true
	}
	if result.Err != nil {
		if result.Reason == launch.ReasonCreate && instance.Gone(result.Err) {
			r.forgetImages(c)
		}
		r.failed(c, result.Reason, result.Err)
		return
	}
	c.Try = plan.Try{}
	if r.Running(c) { // it may have ended already
		r.postStart(ctx, c)
	}
}

// failed records why c did not start, and schedules a retry.
func (r *run) failed(c *container, reason string, err error) {
	c.Fail(reason, err.Error(), time.Now())
	r.at(c.Retry.Until(c.Failure.At))
	switch {
	case c.Kind == podspec.Ephemeral:
	case c.Newest.Exited() && !r.Wants(c): // its last end is known, with its exit code
		if r.p.failsFast() {
			return
		}
	case r.fail(ErrStart, fmt.Errorf("container %s: %w", c.Spec.Name, err)):
		return
	}
	r.event(c, true, "Failed", err.Error())
}

// fail ends the pod with err if the pod fails fast and a container but the ephemeral ones has never run. It reports
// whether it does. Run then returns the error, without an event.
func (r *core) fail(class, err error) bool {
	waits := func(c *container) bool {
		return c.Newest == nil || c.Newest.Restarts == 0 && c.Newest.Status.GetStartedAt() == 0
	}
	if !r.p.failsFast() || !slices.ContainsFunc(r.Of(podspec.Initial, podspec.Sidecar, podspec.Regular), waits) {
		return false
	}
	if r.Fatal == nil { // keep the first cause
		r.Fatal = fmt.Errorf("pod %s: %w: %w", r.Pod.Name, class, err)
	}
	return true
}
