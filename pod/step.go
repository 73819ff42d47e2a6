package pod

import (
	"context"
	"fmt"
	"time"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// The deadlines of calls to the runtime. The runtime's own deadlines are shorter and give better errors.
const (
	sandboxDeadline   = 6 * time.Minute
	containerDeadline = 2 * time.Minute
	observeDeadline   = 30 * time.Second
)

// step takes the next possible steps of the pod.
func (r *run) step(ctx context.Context) {
	r.checkDeadline()
	if stop := r.p.stopping(); stop != nil || r.fatal != nil || r.expired || r.stopping != nil {
		r.terminate(ctx, stop)
		return
	}
	if !r.stopDeadSandbox(ctx) {
		return
	}
	if r.over() {
		r.terminate(ctx, nil)
		return
	}
	if !r.mayBegin(ctx) {
		return
	}
	ready := r.ensureSandbox(ctx)
	r.prefetch(ctx)
	if !ready {
		return
	}
	r.checkHealth(ctx)
	r.checkResize(ctx)
	r.checkImages(ctx)
	if !r.mount(ctx) || !r.volumeImages(ctx) {
		return
	}
	for _, c := range r.next() {
		if r.starting != nil {
			return // one after the other
		}
		if c.kind != podspec.Ephemeral && r.hooked() {
			continue // a running postStart hook blocks other starts
		}
		if !c.tried && c.image.pulling {
			if c.kind == podspec.Ephemeral {
				continue
			}
			return // the first starts follow the pod's order
		}
		if !r.notDelayed(c) || !r.ensureImage(ctx, c) {
			c.tried = c.tried || c.image.failure != nil
			continue
		}
		c.tried = true
		r.start(ctx, c)
	}
}

// prefetch pulls the images of all containers that must run and have not run yet, and of those that must start now.
func (r *run) prefetch(ctx context.Context) {
	r.volumeImages(ctx)
	for _, c := range r.containers {
		if c.newest == nil && r.wants(c) && r.notDelayed(c) {
			r.ensureImage(ctx, c)
		}
	}
	for _, c := range r.next() {
		if r.notDelayed(c) {
			r.ensureImage(ctx, c)
		}
	}
}

// notDelayed reports whether c may be started now. If not, it records why c waits.
func (r *run) notDelayed(c *container) bool {
	now := time.Now()
	if c.newest.Exited() && !c.outgoing() {
		if due := c.restart.Until(c.endedAt(now)); now.Before(due) {
			if c.failure == nil || c.failure.reason != reasonCrashLoop {
				message := fmt.Sprintf("back-off %v restarting failed container=%s pod=%s_%s(%s)",
					c.restart.Delay, c.spec.Name, r.pod.Name, r.pod.Namespace, r.pod.UID)
				c.failure = &failure{reason: reasonCrashLoop, message: message, at: now}
				// The message leaves the delay out, so that repetitions count as the same event.
				r.event(c, true, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)",
					c.spec.Name, r.pod.Name, r.pod.Namespace, r.pod.UID))
			}
			r.at(due)
			return false
		}
	}
	if c.failure != nil && c.failure.reason != reasonCrashLoop {
		if due := c.retry.Until(c.failure.at); now.Before(due) {
			r.at(due)
			return false
		}
	}
	return true
}

// event reports an event. Errors of one cause have the same message, so that they count as one event.
func (r *run) event(c *container, warning bool, reason, message string) {
	r.reportEvent(c, warning, reason, probe.Stable(message))
}

// reportEvent reports an event with a complete message, such as the output of a probe.
func (r *run) reportEvent(c *container, warning bool, reason, message string) {
	event := Event{Time: time.Now(), Warning: warning, Reason: reason, Message: message}
	if c != nil {
		event.Container = c.spec.Name
	}
	r.report(event)
}

func (r *run) report(event Event) {
	if r.o.Event != nil {
		r.o.Event(event)
	}
	r.p.log.Debug("pod event", "reason", event.Reason, "container", event.Container, "message", event.Message)
}
