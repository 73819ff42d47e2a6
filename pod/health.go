package pod

import "context"

// started tells whether c runs, its postStart hook has ended well and its
// startup probe has succeeded.
func (r *run) started(c *container) bool {
	return r.running(c) && c.hook == nil && c.killing != c.newest.id() && r.probes.started(c)
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
	return r.started(c) && r.probes.ready(c)
}

// checkHealth ends what is sick, and the hooks of what has ended.
func (r *run) checkHealth(ctx context.Context) {
	for _, c := range r.containers {
		if !r.running(c) {
			c.hook.stop()
			continue
		}
		if why, grace, yes := r.probes.sick(c); yes {
			r.kill(ctx, c, grace, why)
		}
	}
}
