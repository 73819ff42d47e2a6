package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/probe"
	"github.com/bulkhead-project/bulkhead/pod/watch"
)

const (
	// stopSlack is what stopping may take beyond the grace period.
	stopSlack = time.Minute
	// minimumGrace is what a container has between TERM and KILL when its
	// preStop hook, or those that end before it, have used its grace up.
	minimumGrace = 2 * time.Second
)

// terminate carries out stop, or a shorter one than that under way; nil is one
// with the pod's own grace. The pod has ended when its sandbox has stopped.
func (r *run) terminate(ctx context.Context, stop *stopRequest) {
	if r.giveUp() {
		return // what is on its way must arrive, or have been undone, before it can be stopped
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
				return // a shorter request is at it
			}
			r.end(ctx)
		}
	})
}

// giveUp ends what is under way for the pod's start, which may last for minutes, and tells whether there is any. A call that
// stops a sandbox goes on.
func (r *run) giveUp() bool {
	for _, cancel := range []context.CancelFunc{r.making, r.writing} {
		if cancel != nil {
			cancel()
		}
	}
	return r.giveUpStart() || r.busy || r.writing != nil
}

// victim is a container that is to be ended.
type victim struct {
	c       *container
	target  *probe.Target
	sandbox string
	hook    *preStop        // that is to end first, nil for none
	begin   func()          // begins hook, nil when that is done
	after   []chan struct{} // closed when those have ended that end before it
	gone    chan struct{}   // closed when it has
}

// victims are the containers that run: each sidecar ends after the regular ones
// and after the sidecars that were started after it.
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

// victim makes one of c. Its hook outlives a request that a shorter one follows,
// and ends with ctx.
func (r *run) victim(ctx context.Context, c *container, grace time.Duration) *victim {
	v := &victim{c: c, target: r.target(c), sandbox: c.newest.Sandbox, gone: make(chan struct{})}
	r.hookOf(ctx, v, grace)
	return v
}

// stopContainers ends all at once, as far as their order lets it, and tells
// whether the runtime did.
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

// stopOne ends one container: its hook first, then those before it, then TERM
// and KILL, all within grace.
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
		return ctx.Err() // a shorter request is at it
	}
	seconds := int64((left + time.Second - 1) / time.Second)
	if err := r.o.Runtime.StopContainer(ctx, v.target.ID, seconds); err != nil && !instance.Gone(err) {
		return fmt.Errorf("stop container %s: %w", v.c.spec.Name, err)
	}
	return nil
}

// kill ends one container of a pod that goes on; what happens next is its
// restart policy's.
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

// end stops the sandbox and, when that is done, the loop. It is tried again
// until it succeeds: a machine that runs on is never called ended.
func (r *run) end(ctx context.Context) {
	if r.ended || r.busy {
		return
	}
	if r.sandbox == nil {
		r.ended = true
		return
	}
	id := r.sandbox.GetId()
	r.busy = true // nothing else is done with the sandbox meanwhile
	r.beside(ctx, func() func() {
		for delay := retryDelay; ; delay = min(2*delay, backoff.Last) {
			err := r.stopSandbox(ctx, id)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return func() { r.busy = false } // the pod runs on
			}
			r.p.log.Warn("cannot stop the sandbox", "sandbox", id, "error", err)
			watch.Pause(ctx, delay)
		}
		return func() { r.busy, r.ended = false, true }
	})
}
