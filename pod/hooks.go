package pod

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// hookRun is a postStart hook under way.
type hookRun struct{ cancel context.CancelFunc }

// stop ends the hook; of none it does nothing.
func (h *hookRun) stop() {
	if h != nil {
		h.cancel()
	}
}

// hooked tells whether a postStart hook runs: until it has ended nothing else of
// the pod is started.
func (r *run) hooked() bool {
	for _, c := range r.containers {
		if c.hook != nil {
			return true
		}
	}
	return false
}

// postStart runs the hook of c, which has just started, beside the loop. When
// the hook fails the container is ended, and what follows is its restart
// policy's.
func (r *run) postStart(ctx context.Context, c *container) {
	if c.spec.Lifecycle == nil || c.spec.Lifecycle.PostStart == nil {
		return
	}
	hookCtx, cancel := context.WithCancel(ctx)
	hook, id, handler := &hookRun{cancel}, c.newest.id(), c.spec.Lifecycle.PostStart
	c.hook = hook
	target := r.hookTarget(c)
	r.beside(ctx, func() func() {
		err := target.run(hookCtx, handler)
		given := hookCtx.Err() != nil
		cancel()
		return func() {
			if c.hook == hook {
				c.hook = nil
			}
			if err == nil || given || c.newest.id() != id {
				return
			}
			c.failure = &failure{reason: reasonPostStart, message: "PostStart hook failed: " + err.Error(), at: time.Now()}
			r.event(c, true, "FailedPostStartHook", "PostStartHook failed: "+err.Error())
			r.kill(ctx, c, r.p.grace(), "FailedPostStartHook")
		}
	})
}

// hookTarget is the instance that a hook is for.
type hookTarget struct {
	o       *Options
	spec    *corev1.Container
	id      string // of the container
	sandbox string
	dial    probe.Dialer
	ip      string // of the pod, empty for none
}

// hookTarget is c's newest instance.
func (r *run) hookTarget(c *container) hookTarget {
	target := hookTarget{o: r.o, spec: c.spec, id: c.newest.id(), sandbox: c.newest.sandbox}
	if ips := r.ips(); len(ips) > 0 {
		target.ip = ips[0]
	}
	target.dial = dialer(r.o, target.sandbox, target.ip)
	return target
}

// run carries out a hook and returns when it has ended, or with an error when
// ctx has.
func (t hookTarget) run(ctx context.Context, handler *corev1.LifecycleHandler) error {
	switch {
	case handler.Exec != nil:
		_, _, err := probe.Run(ctx, t.o.Runtime, t.id, handler.Exec.Command, 0)
		return err
	case handler.Sleep != nil:
		pause(ctx, time.Duration(handler.Sleep.Seconds)*time.Second)
		return ctx.Err()
	case handler.HTTPGet != nil:
		port, err := probe.Port(handler.HTTPGet.Port, t.spec)
		if err != nil {
			return err
		}
		return probe.Hook(ctx, t.dial, handler.HTTPGet, port, t.ip)
	case handler.TCPSocket != nil:
		port, err := probe.Port(handler.TCPSocket.Port, t.spec)
		if err != nil {
			return err
		}
		result, why, err := probe.TCP(ctx, t.dial, port)
		if err == nil && result == probe.Failure {
			err = errors.New(probe.Line(why))
		}
		return err
	}
	return errors.New("the hook has no handler")
}
