package pod

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		if c.newest.exited() {
			restarts = c.newest.restarts + 1
			now := time.Now()
			c.restart.next(c.endedAt(now), now)
		} else {
			// Made and never started, or lost: nothing has run that counts.
			restarts = c.newest.restarts
			if err := r.o.Runtime.RemoveContainer(ctx, c.newest.status.GetId()); err != nil && !notFound(err) {
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
	config, err := containerConfig(ctx, r.o, c.spec, launch{
		image: image.image, ref: image.ref, restarts: restarts, ips: r.ips(), target: target, allocatable: allocatable,
		skipped: func(s skipped) { r.skipped(c, s) }, images: r.imageRefs(),
	})
	if err != nil {
		r.failed(c, reasonConfig, err)
		return
	}
	if err := r.makeDirs(c, restarts); err != nil {
		r.failed(c, reasonConfig, err)
		return
	}
	id, err := r.o.Runtime.CreateContainer(ctx, r.sandbox.GetId(), config, sandboxConfig(r.o, r.sandbox.GetMetadata().GetAttempt()))
	if err != nil {
		if notFound(err) {
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
		if c.newest.exited() {
			c.previous = c.newest
		}
		c.newest = &instance{sandbox: r.sandbox.GetId(), restarts: restarts, status: status.GetStatus()}
		c.resumed = true
	}
	if err != nil {
		r.failed(c, reasonRun, err)
		return
	}
	c.failure, c.retry = nil, backoff{}
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
	return makeMessage(r.o, c.spec.Name, restarts)
}

// targetOf is the id of the container whose processes c is to see, empty for
// none.
func (r *run) targetOf(c *container) (string, error) {
	if c.target == "" {
		return "", nil
	}
	for _, other := range r.containers {
		if other.spec.Name == c.target && r.running(other) {
			return other.newest.id(), nil
		}
	}
	return "", fmt.Errorf("target container %q does not run", c.target)
}

// failed records why c could not be started; it is tried again later.
func (r *run) failed(c *container, reason string, err error) {
	c.failure = &failure{reason: reason, message: err.Error(), at: time.Now()}
	c.retry.next(c.failure.at, c.failure.at)
	r.at(c.retry.until(c.failure.at))
	if c.kind == ephemeral {
		r.event(c, true, "Failed", err.Error())
		return
	}
	if c.newest.exited() && !r.wants(c) {
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
	for _, c := range r.of(initial, sidecar, regular) {
		if c.newest == nil || c.newest.restarts == 0 && c.newest.status.GetStartedAt() == 0 {
			return false
		}
	}
	return true
}
