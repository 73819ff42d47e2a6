package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/probe"
	"github.com/bulkhead-project/bulkhead/pod/watch"
)

const (
	// stopSlack is the time for stopping beyond the grace period.
	stopSlack = time.Minute
	// minimumGrace is the time between TERM and KILL of a container when its preStop hook, or containers that end
	// before it, have used up the grace.
	minimumGrace = 2 * time.Second
)

// terminate carries out stop, or replaces a longer running one; nil means the pod's own grace. The pod has ended when
// its sandbox has stopped.
func (r *run) terminate(ctx context.Context, stop *stopRequest) {
	if r.giveUp() {
		return // running steps must end or be undone before the pod can be stopped
	}
	if stop == nil {
		stop = r.stopping
	}
	if stop == nil {
		stop = &stopRequest{grace: r.p.grace()}
	}
	if r.stopping != nil && r.stopping.grace <= stop.grace {
		return
	}
	if r.hurry != nil {
		r.hurry()
	}
	r.stopping = stop
	r.stops++
	victims := r.victims(ctx, stop.grace)
	if r.fatal != nil && len(victims) > 0 {
		r.event(nil, true, "Killing", "Stopping the pod's other containers after the failure")
	}
	stopCtx, cancel := context.WithCancel(ctx)
	r.hurry = cancel
	r.beside(ctx, func() func() {
		stopped := r.stopContainers(stopCtx, victims, stop.grace)
		cancel()
		return func() {
			r.stops--
			if !stopped && r.stops > 0 {
				return // a shorter request is running
			}
			r.end(ctx)
		}
	})
}

// giveUp cancels the running steps of the pod's start, which may take minutes, and reports whether there are any. A
// call that stops a sandbox continues.
func (r *run) giveUp() bool {
	for _, cancel := range []context.CancelFunc{r.making, r.writing} {
		if cancel != nil {
			cancel()
		}
	}
	return r.giveUpStart() || r.busy || r.writing != nil
}

// victim is a container that must end.
type victim struct {
	c       *container
	target  *probe.Target
	sandbox string
	hook    *preStop        // ends first; nil for none
	begin   func()          // starts hook; nil when it has been started
	after   []chan struct{} // closed when containers that end before it have ended
	gone    chan struct{}   // closed when this container has ended
}

// victims returns the running containers. Each sidecar ends after the regular containers and after the sidecars that
// started after it.
func (r *run) victims(ctx context.Context, grace time.Duration) []*victim {
	var out []*victim
	var before []chan struct{}
	ordered := r.of(podspec.Ephemeral, podspec.Initial, podspec.Regular)
	sidecars := r.of(podspec.Sidecar)
	for i := len(sidecars) - 1; i >= 0; i-- {
		ordered = append(ordered, sidecars[i])
	}
	for _, c := range ordered {
		c.hook.stop()
		if !r.running(c) {
			continue
		}
		r.event(c, false, "Killing", "Stopping container "+c.spec.Name)
		v := r.victim(ctx, c, grace)
		if c.kind == podspec.Sidecar {
			v.after = before[:len(before):len(before)]
		}
		if c.kind == podspec.Sidecar || c.kind == podspec.Regular {
			before = append(before, v.gone)
		}
		out = append(out, v)
	}
	return out
}

// victim returns c as a victim. Its hook survives a request that a shorter one replaces, and ends with ctx.
func (r *run) victim(ctx context.Context, c *container, grace time.Duration) *victim {
	v := &victim{c: c, target: r.target(c), sandbox: c.newest.Sandbox, gone: make(chan struct{})}
	r.hookOf(ctx, v, grace)
	return v
}

// stopContainers stops all victims concurrently, within their order, and reports whether all stopped.
func (r *run) stopContainers(ctx context.Context, victims []*victim, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace+minimumGrace*time.Duration(len(victims))+stopSlack)
	defer cancel()
	r.wake(ctx, victims...)
	errs := make([]error, len(victims))
	var all sync.WaitGroup
	for i, v := range victims {
		all.Go(func() { errs[i] = r.stopOne(ctx, v, grace) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		if ctx.Err() == nil {
			r.p.log.Warn("containers could not be stopped in order", "error", err)
		}
		return false
	}
	return true
}

// stopOne stops one container within grace: it waits for its hook and the containers before it, then sends TERM and
// KILL.
func (r *run) stopOne(ctx context.Context, v *victim, grace time.Duration) error {
	defer close(v.gone)
	began, left := time.Now(), grace
	turn, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if v.hook != nil {
		if v.begin != nil {
			v.begin()
		}
		v.awaitHook(ctx, turn, grace)
	}
	for _, other := range v.after {
		select {
		case <-other:
		case <-turn.Done():
		}
	}
	if grace > 0 && (v.hook != nil || len(v.after) > 0) {
		left = max(grace-time.Since(began), minimumGrace)
	}
	if ctx.Err() != nil {
		return ctx.Err() // a shorter request is running
	}
	seconds := int64((left + time.Second - 1) / time.Second)
	if err := r.o.Runtime.StopContainer(ctx, v.target.ID, seconds); err != nil && !instance.Gone(err) {
		return fmt.Errorf("stop container %s: %w", v.c.spec.Name, err)
	}
	return nil
}

// kill stops one container of a pod that continues. Its restart policy decides what follows.
func (r *run) kill(ctx context.Context, c *container, grace time.Duration, why string) {
	id := c.newest.ID()
	if !r.running(c) || c.killing == id || r.stopping != nil {
		return
	}
	c.killing = id
	c.hook.stop()
	r.event(c, false, "Killing", why)
	v := r.victim(ctx, c, grace)
	r.beside(ctx, func() func() {
		r.wake(ctx, v)
		err := r.stopOne(ctx, v, grace)
		if err == nil || ctx.Err() != nil {
			return func() {}
		}
		r.p.log.Warn("cannot stop a container", "container", v.c.spec.Name, "error", err)
		watch.Pause(ctx, retryDelay)
		return func() {
			if c.killing == id {
				c.killing = ""
				r.kill(ctx, c, grace, why)
			}
		}
	})
}

// end stops the sandbox, and then the loop. It retries until it succeeds: a pod must not count as ended while its VM
// runs.
func (r *run) end(ctx context.Context) {
	if r.ended || r.busy {
		return
	}
	if r.sandbox == nil {
		r.ended = true
		return
	}
	id := r.sandbox.GetId()
	r.busy = true // no other step may use the sandbox meanwhile
	r.beside(ctx, func() func() {
		pauses := retry.Pauses{First: retryDelay, Last: backoff.Last}
		err := pauses.Until(ctx, nil, func() error { return r.stopSandbox(ctx, id) }, func(err error) {
			r.p.log.Warn("cannot stop the sandbox", "sandbox", id, "error", err)
		})
		return func() { r.busy, r.ended = false, err == nil } // if ctx has ended, the pod continues to run
	})
}
