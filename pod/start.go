package pod

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/logs"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// The kubelet's reasons for a container that cannot be made or started.
const (
	// ReasonCreating is that of a container which has not been started.
	ReasonCreating = "ContainerCreating"

	reasonInitializing = "PodInitializing"
	reasonConfig       = "CreateContainerConfigError"
	reasonCreate       = "CreateContainerError"
	reasonRun          = "RunContainerError"
	reasonCrashLoop    = "CrashLoopBackOff"
	reasonPostStart    = "PostStartHookError"
)

// start makes and starts the next instance of c.
func (r *run) start(runCtx context.Context, c *container) {
	ctx, cancel := context.WithTimeout(runCtx, containerDeadline)
	defer cancel()
	restarts := int32(0)
	if c.newest != nil {
		if c.newest.Exited() {
			restarts = c.newest.Restarts + 1
			now := time.Now()
			c.restart.Next(c.endedAt(now), now)
		} else {
			// Made and never started, or lost: nothing has run that counts.
			restarts = c.newest.Restarts
			if err := r.o.Runtime.RemoveContainer(ctx, c.newest.Status.GetId()); err != nil && !instance.Gone(err) {
				r.failed(c, reasonCreate, fmt.Errorf("remove the container that was never started: %w", err))
				return
			}
		}
	}
	image := c.image
	if c.spec.ImagePullPolicy == corev1.PullAlways || restarts > 0 {
		c.image = imageState{} // looked up again before the next start
	}
	target, err := r.targetOf(c)
	if err != nil {
		r.failed(c, reasonConfig, err)
		return
	}
	allocatable, err := r.allocatable(ctx)
	if err != nil {
		r.failed(c, reasonConfig, err)
		return
	}
	launch := config.Launch{
		Restarts: restarts, IPs: r.ips(), Target: target, Allocatable: allocatable,
		Skipped: func(s config.Skipped) { r.skipped(c, s) }, Images: r.imageRefs(),
		Note: func(reason, message string) {
			if !r.p.failsFast() { // else its error is Run's alone
				r.event(c, true, reason, message)
			}
		},
	}
	if image.image != nil {
		launch.Image, launch.Ref = image.image.Image, image.image.Ref
	}
	spec, err := config.Container(ctx, &r.o.Options, c.spec, launch)
	if err != nil {
		r.failed(c, reasonConfig, err)
		return
	}
	if err := r.makeDirs(c, restarts); err != nil {
		r.failed(c, reasonConfig, err)
		return
	}
	id, err := r.createContainer(ctx, c.spec, spec)
	if err != nil {
		if instance.Gone(err) {
			r.forgetImages(c)
		}
		r.failed(c, reasonCreate, err)
		return
	}
	r.event(c, false, "Created", "Created container "+c.spec.Name)
	c.ours = id
	err = r.o.Runtime.StartContainer(ctx, id)
	status, statusErr := r.o.Runtime.ContainerStatus(ctx, id, false)
	if statusErr == nil {
		if c.newest.Exited() {
			c.previous = c.newest
		}
		c.newest = &instance.Instance{Sandbox: r.sandbox.GetId(), Restarts: restarts, Status: status.GetStatus()}
		c.resumed = true
	}
	if err != nil {
		r.failed(c, reasonRun, err)
		return
	}
	c.failure, c.retry = nil, backoff.Backoff{}
	r.event(c, false, "Started", "Started container "+c.spec.Name)
	// It may have ended already, before its start was seen as running.
	if !r.running(c) {
		r.at(time.Now())
		return
	}
	r.postStart(runCtx, c)
}

// makeDirs makes what an instance of c writes to on the host.
func (r *run) makeDirs(c *container, restarts int32) error {
	if r.o.LogDir != "" {
		if err := os.MkdirAll(filepath.Join(r.o.LogDir, c.spec.Name), 0o755); err != nil {
			return fmt.Errorf("make the log directory: %w", err)
		}
	}
	return logs.MakeMessage(&r.o.Options, c.spec.Name, restarts)
}

// targetOf is the id of the container whose processes c is to see, empty for
// none.
func (r *run) targetOf(c *container) (string, error) {
	if c.target == "" {
		return "", nil
	}
	for _, other := range r.containers {
		if other.spec.Name == c.target && r.running(other) {
			return other.newest.ID(), nil
		}
	}
	return "", fmt.Errorf("target container %q does not run", c.target)
}

// failed records why c could not be started; it is tried again later.
func (r *run) failed(c *container, reason string, err error) {
	c.failure = &failure{reason: reason, message: err.Error(), at: time.Now()}
	c.retry.Next(c.failure.at, c.failure.at)
	r.at(c.retry.Until(c.failure.at))
	if c.kind == podspec.Ephemeral {
		r.event(c, true, "Failed", err.Error())
		return
	}
	if c.newest.Exited() && !r.wants(c) {
		r.at(time.Now()) // the end is known, with its exit code
		if !r.p.failsFast() {
			r.event(c, true, "Failed", err.Error())
		}
		return
	}
	if !r.fail(ErrStart, fmt.Errorf("container %s: %w", c.spec.Name, err)) {
		r.event(c, true, "Failed", err.Error())
	}
}

// fail ends the pod if it is to fail fast, and tells whether it does: then the
// error is Run's and no event tells it before.
func (r *run) fail(class, err error) bool {
	if !r.p.failsFast() || r.up() {
		return false
	}
	if r.fatal == nil { // the first is the cause that is told
		r.fatal = fmt.Errorf("pod %s: %w: %w", r.pod.Name, class, err)
	}
	return true
}

// up tells whether every container of the pod's own has run at least once.
func (r *run) up() bool {
	for _, c := range r.of(podspec.Initial, podspec.Sidecar, podspec.Regular) {
		if c.newest == nil || c.newest.Restarts == 0 && c.newest.Status.GetStartedAt() == 0 {
			return false
		}
	}
	return true
}

func (r *run) createContainer(ctx context.Context, of *corev1.Container, spec *runtimeapi.ContainerConfig) (string, error) {
	sandbox := config.Sandbox(&r.o.Options, r.sandbox.GetMetadata().GetAttempt())
	if more, ok := r.o.Runtime.(runtimev1.Runtime); ok {
		return more.CreateContainerWith(ctx, r.sandbox.GetId(), spec, sandbox, config.BeyondContainer(&r.o.Options, of))
	}
	return r.o.Runtime.CreateContainer(ctx, r.sandbox.GetId(), spec, sandbox)
}
