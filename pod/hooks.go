package pod

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// stopHook cancels the postStart hook of c, if one runs.
func (r *stopper) stopHook(c *container) {
	if c.Hooked {
		r.hooks[c]()
	}
}

// postStart runs the hook of c, which has just started, beside the loop. If the hook fails, the container is stopped,
// and its restart policy decides what follows.
func (r *run) postStart(ctx context.Context, c *container) {
	if c.Spec.Lifecycle == nil || c.Spec.Lifecycle.PostStart == nil {
		return
	}
	hookCtx, cancel := context.WithCancel(ctx)
	id, handler := c.Newest.ID(), c.Spec.Lifecycle.PostStart
	c.Hooked, r.hooks[c] = true, cancel
	target := r.target(c)
	r.beside(ctx, func() func() {
		err := target.Hook(hookCtx, handler)
		given := hookCtx.Err() != nil
		cancel()
		return func() {
			c.Hooked = false
			if err == nil || given || c.Newest.ID() != id {
				return
			}
			c.Failure = &plan.Failure{Reason: reasonPostStart, Message: "PostStart hook failed: " + err.Error(), At: time.Now()}
			r.event(c, true, "FailedPostStartHook", "PostStartHook failed: "+err.Error())
			r.kill(ctx, c, r.p.grace(), "FailedPostStartHook")
		}
	})
}

// target returns c's newest instance as the target of probes and hooks.
func (r *view) target(c *container) *probe.Target {
	ip := ""
	if ips := r.ips(); len(ips) > 0 {
		ip = ips[0]
	}
	t := &probe.Target{
		Container: c.Spec, ID: c.Newest.ID(), Runtime: r.o.Runtime, Host: ip, Dial: probe.To(ip),
		Command: func(command []string) []string { return config.StaticCommand(c.Spec, command) },
	}
	if r.o.Dial != nil {
		sandbox := c.Newest.Sandbox
		t.Dial = probe.Through(func(ctx context.Context, port int) (net.Conn, error) { return r.o.Dial(ctx, sandbox, port) }, ip)
	}
	return t
}

// preStop is the one run of the preStop hook of a container's instance. Several stop requests may wait for it. As soon as one
// grace period ends, the hook is cancelled.
type preStop struct {
	id   string                  // of the container
	cut  context.CancelCauseFunc // cancels it; the cause context.Canceled makes no event
	done chan struct{}           // closed when it has ended
}

// victim returns c as a victim, with the hook that must end before TERM. A hook starts only once. It survives a request
// that a shorter one replaces, and ends with ctx. A request with a grace of 0 starts none and cancels a running one.
func (r *stopper) victim(ctx context.Context, c *container, grace time.Duration) *victim {
	v := &victim{c: c, target: r.target(c), sandbox: c.Newest.Sandbox, gone: make(chan struct{})}
	if h := r.preStops[c]; h != nil && h.id == v.target.ID {
		select {
		case <-h.done: // it has ended
			return v
		default:
		}
		if grace == 0 {
			h.cut(context.Canceled)
		} else {
			v.hook = h
		}
		return v
	}
	if c.Spec.Lifecycle == nil || c.Spec.Lifecycle.PreStop == nil || grace == 0 {
		return v
	}
	hookCtx, cut := context.WithCancelCause(ctx)
	h := &preStop{id: v.target.ID, cut: cut, done: make(chan struct{})}
	r.preStops[c], v.hook = h, h
	v.begin = func() {
		r.work.Go(func() {
			defer close(h.done)
			defer cut(nil)
			err := v.target.Hook(hookCtx, v.c.Spec.Lifecycle.PreStop)
			if cause := context.Cause(hookCtx); err != nil && cause != nil {
				err = cause
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				r.inLoop(ctx, func() { r.event(c, true, "FailedPreStopHook", "PreStopHook failed: "+err.Error()) })
			}
		})
	}
	return v
}

// wakePatience bounds the resumption of a paused VM.
const wakePatience = 10 * time.Second

// wake resumes the victims' VM if it is paused: hooks and signals need a VM that runs.
func (r *stopper) wake(ctx context.Context, victims ...*victim) {
	if r.o.Resume == nil || len(victims) == 0 {
		return
	}
	sandbox := victims[0].sandbox
	if r.o.Pauses != nil {
		if _, paused := r.o.Pauses(sandbox); !paused {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, wakePatience)
	defer cancel()
	if err := r.o.Resume(ctx, sandbox); err != nil && ctx.Err() == nil {
		r.p.log.Warn("cannot resume the VM of a paused pod that must end", "sandbox", sandbox, "error", err)
	}
}

// awaitHook waits for the hook of v, and cancels it when turn, which is ctx limited to grace, ends. If ctx itself has
// ended, the hook is left to the next request.
func (v *victim) awaitHook(ctx, turn context.Context, grace time.Duration) {
	select {
	case <-v.hook.done:
		return
	case <-turn.Done():
	}
	if ctx.Err() != nil {
		return
	}
	v.hook.cut(fmt.Errorf("it did not end within the grace period of %v", grace))
	select {
	case <-v.hook.done:
	case <-ctx.Done():
	}
}
