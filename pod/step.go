package pod

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// How long one call to the runtime may take before it counts as failed. The
// runtime's own deadlines are shorter and its errors better.
const (
	sandboxDeadline   = 6 * time.Minute
	containerDeadline = 2 * time.Minute
)

// The kubelet's reasons for a container that cannot be made or started.
const (
	reasonCreating  = "ContainerCreating"
	reasonConfig    = "CreateContainerConfigError"
	reasonCreate    = "CreateContainerError"
	reasonRun       = "RunContainerError"
	reasonCrashLoop = "CrashLoopBackOff"
)

// step does what the pod needs next, as far as it can be done now.
func (r *run) step(ctx context.Context) {
	if stop := r.p.stopping(); stop != nil || r.fatal != nil || r.stopping != nil {
		r.terminate(ctx, stop)
		return
	}
	if !r.settle(ctx) {
		return
	}
	if r.over() {
		r.terminate(ctx, &stopRequest{})
		return
	}
	ready := r.ensureSandbox(ctx)
	for _, c := range r.containers {
		if r.wants(c) && r.notDelayed(c) {
			r.ensureImage(ctx, c)
		}
	}
	if !ready {
		return
	}
	for _, c := range r.containers {
		if !r.wants(c) {
			continue
		}
		if !c.tried && c.image.pulling {
			return // the first starts are in the pod's order
		}
		if c.image.image == nil || !r.notDelayed(c) {
			c.tried = c.tried || c.image.failure != nil
			continue
		}
		c.tried = true
		r.start(ctx, c)
		if r.fatal != nil {
			r.terminate(ctx, nil)
			return
		}
	}
}

// running tells whether c runs in the pod's sandbox.
func (r *run) running(c *container) bool {
	return c.newest != nil && c.newest.status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING &&
		r.ready() && c.newest.sandbox == r.sandbox.GetId()
}

func (r *run) ready() bool {
	return r.sandbox != nil && r.sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
}

// wants tells whether c is to be started, by its state and the restart policy.
func (r *run) wants(c *container) bool {
	if r.running(c) {
		return false
	}
	if c.newest == nil || c.newest.status.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
		return true
	}
	// What is neither here nor known to have ended has failed.
	succeeded := c.newest.exited() && c.newest.status.GetExitCode() == 0
	switch r.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return !succeeded
	}
	return true
}

// over tells whether the pod has run to its end.
func (r *run) over() bool {
	for _, c := range r.containers {
		if r.running(c) || r.wants(c) {
			return false
		}
	}
	return true
}

// notDelayed tells whether a restart of c is due, and else says why c waits.
func (r *run) notDelayed(c *container) bool {
	now := time.Now()
	if c.newest.exited() {
		if due := c.restart.until(nano(c.newest.status.GetFinishedAt())); now.Before(due) {
			if c.failure == nil || c.failure.reason != reasonCrashLoop {
				message := fmt.Sprintf("back-off %v restarting failed container=%s pod=%s_%s(%s)",
					c.restart.delay, c.spec.Name, r.pod.Name, r.pod.Namespace, r.pod.UID)
				c.failure = &failure{reason: reasonCrashLoop, message: message, at: now}
				r.event(c, true, "BackOff", message)
			}
			r.at(due)
			return false
		}
	}
	if c.failure != nil && c.failure.reason != reasonCrashLoop {
		if due := c.retry.until(c.failure.at); now.Before(due) {
			r.at(due)
			return false
		}
	}
	return true
}

// settle tells whether what is said of the containers can be relied on. Those of
// a sandbox that has died end with it, whatever state they are said to be in:
// the runtime is asked once for each dead sandbox to stop it, and looked at anew.
func (r *run) settle(ctx context.Context) bool {
	if r.sandbox == nil || r.ready() || r.busy || r.sandbox.GetId() == r.settled {
		return !r.busy
	}
	id := r.sandbox.GetId()
	r.busy = true
	r.beside(ctx, func() func() {
		err := r.stopSandbox(ctx, id)
		return func() {
			r.busy = false
			if err == nil {
				r.settled = id
				return
			}
			r.p.log.Warn("cannot stop a sandbox that has died", "sandbox", id, "error", err)
			r.busy = true
			r.beside(ctx, func() func() { pause(ctx, retryDelay); return func() { r.busy = false } })
		}
	})
	return false
}

// pause waits for d, or less when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ensureSandbox tells whether the pod has a sandbox that is up, and has one
// made if it has none and none is on its way. A dead one is replaced.
func (r *run) ensureSandbox(ctx context.Context) bool {
	if r.ready() || r.busy {
		return r.ready() && !r.busy
	}
	if r.sandboxErr != nil {
		if due := r.sandboxTry.until(r.sandboxAt); time.Now().Before(due) {
			r.at(due)
			return false
		}
	}
	attempt := uint32(0)
	if r.sandbox != nil {
		attempt = r.sandbox.GetMetadata().GetAttempt() + 1
		r.event(nil, false, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	r.busy = true
	config := sandboxConfig(r.o, attempt)
	r.beside(ctx, func() func() {
		ctx, cancel := context.WithTimeout(ctx, sandboxDeadline)
		defer cancel()
		err := r.makeSandbox(ctx, config)
		return func() {
			r.busy = false
			r.sandboxErr = err
			if err == nil {
				r.sandboxTry = backoff{}
				return
			}
			r.sandboxAt = time.Now()
			r.sandboxTry.next(r.sandboxAt)
			if !r.fail(ErrStart, err) {
				r.event(nil, true, "FailedCreatePodSandBox", err.Error())
			}
		}
	})
	return false
}

func (r *run) makeSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig) error {
	if r.o.LogDir != "" {
		if err := os.MkdirAll(r.o.LogDir, 0o755); err != nil {
			return fmt.Errorf("make the pod's log directory: %w", err)
		}
	}
	_, err := r.o.Runtime.RunPodSandbox(ctx, config, r.runtimeHandler())
	return err // which says what was done
}

func (r *run) runtimeHandler() string {
	if class := r.pod.Spec.RuntimeClassName; class != nil {
		return *class
	}
	return ""
}

// start makes and starts the next instance of c.
func (r *run) start(ctx context.Context, c *container) {
	ctx, cancel := context.WithTimeout(ctx, containerDeadline)
	defer cancel()
	restarts := int32(0)
	if c.newest != nil {
		if c.newest.exited() {
			restarts = c.newest.restarts + 1
			c.restart.next(nano(c.newest.status.GetFinishedAt()))
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
	config, err := containerConfig(r.o, c.spec, launch{image: image.image, ref: image.ref, restarts: restarts, ips: r.ips()})
	if err != nil {
		r.failed(c, reasonConfig, err)
		return
	}
	if r.o.LogDir != "" {
		if err := os.MkdirAll(filepath.Join(r.o.LogDir, c.spec.Name), 0o755); err != nil {
			r.failed(c, reasonConfig, fmt.Errorf("make the log directory: %w", err))
			return
		}
	}
	id, err := r.o.Runtime.CreateContainer(ctx, r.sandbox.GetId(), config, sandboxConfig(r.o, r.sandbox.GetMetadata().GetAttempt()))
	if err != nil {
		r.failed(c, reasonCreate, err)
		return
	}
	r.event(c, false, "Created", "Created container "+c.spec.Name)
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
	}
}

// failed records why c could not be started; it is tried again later.
func (r *run) failed(c *container, reason string, err error) {
	c.failure = &failure{reason: reason, message: err.Error(), at: time.Now()}
	c.retry.next(c.failure.at)
	r.at(c.retry.until(c.failure.at))
	if c.newest.exited() && r.pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		r.at(time.Now()) // the end is known, with its exit code
		if !r.o.FailFast {
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
	if !r.o.FailFast || r.up() {
		return false
	}
	if r.fatal == nil { // the first is the cause that is told
		r.fatal = fmt.Errorf("pod %s: %w: %w", r.pod.Name, class, err)
	}
	return true
}

// up tells whether every container has run at least once.
func (r *run) up() bool {
	for _, c := range r.containers {
		if c.newest == nil || c.newest.restarts == 0 && c.newest.status.GetStartedAt() == 0 {
			return false
		}
	}
	return true
}

func (r *run) event(c *container, warning bool, reason, message string) {
	event := Event{Time: time.Now(), Warning: warning, Reason: reason, Message: message}
	if c != nil {
		event.Container = c.spec.Name
	}
	if r.o.Event != nil {
		r.o.Event(event)
	}
	r.p.log.Debug("pod event", "reason", reason, "container", event.Container, "message", message)
}
