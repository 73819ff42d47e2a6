package pod

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

const (
	// stopSlack is the time for stopping beyond the grace period.
	stopSlack = time.Minute
	// minimumGrace is the time between TERM and KILL of a container when its preStop hook, or containers that end
	// before it, have used up the grace.
	minimumGrace = 2 * time.Second
)

// stopper stops containers.
type stopper struct {
	*core
	hooks    map[*container]context.CancelFunc // cancel running postStart hooks
	preStops map[*container]*preStop           // the last preStop hooks
	stops    int                               // running calls for the request to stop
	hurry    context.CancelFunc                // cancels the running one for a shorter one
}

// stop stops all containers within grace, beside the loop, or hurries the running stop.
func (r *stopper) stop(ctx context.Context, grace time.Duration) {
	if r.hurry != nil {
		r.hurry()
	}
	r.Stopping = &grace
	r.stops++
	victims := r.victims(ctx, grace)
	if r.Fatal != nil && len(victims) > 0 {
		r.event(nil, true, "Killing", "Stopping the pod's other containers after the failure")
	}
	stopCtx, cancel := context.WithCancel(ctx)
	r.hurry = cancel
	r.beside(ctx, func() func() {
		stopped := r.stopContainers(stopCtx, victims, grace)
		cancel()
		return func() {
			r.stops--
			r.Stopped = r.Stopped || stopped || r.stops == 0 // else a shorter request is running
		}
	})
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

// victims returns the running containers, in their order.
func (r *stopper) victims(ctx context.Context, grace time.Duration) []*victim {
	for _, c := range r.Containers {
		r.stopHook(c)
	}
	var out []*victim
	gone := make(map[*container]chan struct{})
	for _, one := range plan.Order(&r.State) {
		r.event(one.Container, false, "Killing", "Stopping container "+one.Spec.Name)
		v := r.victim(ctx, one.Container, grace)
		for _, other := range one.After {
			v.after = append(v.after, gone[other])
		}
		gone[v.c] = v.gone
		out = append(out, v)
	}
	return out
}

// stopContainers stops all victims concurrently, within their order, and reports whether all stopped.
func (r *stopper) stopContainers(ctx context.Context, victims []*victim, grace time.Duration) bool {
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
func (r *stopper) stopOne(ctx context.Context, v *victim, grace time.Duration) error {
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
	return instance.Unless(r.o.Runtime.StopContainer(ctx, v.target.ID, seconds), "stop container", v.c.Spec.Name)
}

// kill stops one container of a pod that continues. Its restart policy decides what follows.
func (r *stopper) kill(ctx context.Context, c *container, grace time.Duration, why string) {
	id := c.Newest.ID()
	if !r.Running(c) || c.Killing == id || r.Stopping != nil {
		return
	}
	c.Killing = id
	r.stopHook(c)
	r.event(c, false, "Killing", why)
	v := r.victim(ctx, c, grace)
	r.beside(ctx, func() func() {
		r.wake(ctx, v)
		err := r.stopOne(ctx, v, grace)
		if err == nil || ctx.Err() != nil {
			return func() {}
		}
		r.p.log.Warn("cannot stop a container", "container", v.c.Spec.Name, "error", err)
		retry.Sleep(ctx, retryDelay, nil)
		return func() {
			if c.Killing == id {
				c.Killing = ""
				r.kill(ctx, c, grace, why)
			}
		}
	})
}
