package pod

import (
	"context"
	"net"
	"time"

	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// hookRun is a running postStart hook.
type hookRun struct{ cancel context.CancelFunc }

// stop cancels the hook; a nil hook is fine.
func (h *hookRun) stop() {
	if h != nil {
		h.cancel()
	}
}

// hooked reports whether a postStart hook runs. Until it ends, no other container of the pod is started.
func (r *run) hooked() bool {
	for _, c := range r.containers {
		if c.hook != nil {
			return true
		}
	}
	return false
}

// postStart runs the hook of c, which has just started, beside the loop. If the hook fails, the container is stopped,
// and its restart policy decides what follows.
func (r *run) postStart(ctx context.Context, c *container) {
	if c.spec.Lifecycle == nil || c.spec.Lifecycle.PostStart == nil {
		return
	}
	hookCtx, cancel := context.WithCancel(ctx)
	hook, id, handler := &hookRun{cancel}, c.newest.ID(), c.spec.Lifecycle.PostStart
	c.hook = hook
	target := r.target(c)
	r.beside(ctx, func() func() {
		err := target.Hook(hookCtx, handler)
		given := hookCtx.Err() != nil
		cancel()
		return func() {
			if c.hook == hook {
				c.hook = nil
			}
			if err == nil || given || c.newest.ID() != id {
				return
			}
			c.failure = &failure{reason: reasonPostStart, message: "PostStart hook failed: " + err.Error(), at: time.Now()}
			r.event(c, true, "FailedPostStartHook", "PostStartHook failed: "+err.Error())
			r.kill(ctx, c, r.p.grace(), "FailedPostStartHook")
		}
	})
}

// target returns c's newest instance as the target of probes and hooks.
func (r *run) target(c *container) *probe.Target {
	ip := ""
	if ips := r.ips(); len(ips) > 0 {
		ip = ips[0]
	}
	t := &probe.Target{
		Container: c.spec, ID: c.newest.ID(), Runtime: r.o.Runtime, Host: ip, Dial: probe.To(ip),
		Command: func(command []string) []string { return config.StaticCommand(c.spec, command) },
	}
	if r.o.Dial != nil {
		sandbox := c.newest.Sandbox
		t.Dial = probe.Through(func(ctx context.Context, port int) (net.Conn, error) { return r.o.Dial(ctx, sandbox, port) }, ip)
	}
	return t
}
