package pod

import (
	"context"
	"time"
)

// health is what probes say of a pod's containers. It is asked on the goroutine
// of Run, about instances that run, and answers at once; when an answer changes,
// it has the loop turn.
type health interface {
	// started tells whether the startup probe has succeeded; without one it has.
	started(c *container) bool
	// ready tells whether the readiness probe succeeds; without one it does.
	ready(c *container) bool
	// sick tells that the container is to be ended, within grace, and why: its
	// liveness or startup probe has failed.
	sick(c *container) (why string, grace time.Duration, yes bool)
}

// unprobed is the health of a pod without probes: what runs is well.
type unprobed struct{}

func (unprobed) started(*container) bool                       { return true }
func (unprobed) ready(*container) bool                         { return true }
func (unprobed) sick(*container) (string, time.Duration, bool) { return "", 0, false }

// started tells whether c runs, its postStart hook has ended well and its
// startup probe has succeeded.
func (r *run) started(c *container) bool {
	return r.running(c) && c.hook == nil && c.killing != c.newest.id() && r.health.started(c)
}

// isReady tells whether c is ready: an initial container when it has succeeded,
// any other when it serves.
func (r *run) isReady(c *container) bool {
	switch c.kind {
	case initial:
		return c.newest.exited() && c.newest.status.GetExitCode() == 0
	case ephemeral:
		return false
	}
	return r.started(c) && r.health.ready(c)
}

// checkHealth ends what is sick, and the hooks of what has ended.
func (r *run) checkHealth(ctx context.Context) {
	for _, c := range r.containers {
		if !r.running(c) {
			c.hook.stop()
			continue
		}
		if why, grace, yes := r.health.sick(c); yes {
			r.kill(ctx, c, grace, why)
		}
	}
}
