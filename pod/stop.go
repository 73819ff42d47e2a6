package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// stopSlack is what stopping may take beyond the grace period.
const stopSlack = time.Minute

// terminate carries out stop, or a shorter one than that under way; nil is one
// with the pod's own grace, for what runs beside a container that failed. The pod has ended when its sandbox has stopped.
func (r *run) terminate(ctx context.Context, stop *stopRequest) {
	if r.busy {
		return // what is on its way must arrive before it can be stopped
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
	r.stopping = stop
	r.stops++
	var running []*container
	for _, c := range r.containers {
		if r.running(c) {
			running = append(running, c)
			r.event(c, false, "Killing", "Stopping container "+c.spec.Name)
		}
	}
	if r.fatal != nil && len(running) > 0 {
		r.event(nil, true, "Killing", "stopping the pod's other containers, which failed nothing")
	}
	ids := make([]string, len(running))
	for i, c := range running {
		ids[i] = c.newest.status.GetId()
	}
	r.beside(ctx, func() func() {
		stopped := r.stopContainers(ctx, ids, stop.grace)
		return func() {
			r.stops--
			if !stopped && r.stops > 0 {
				return // a shorter request is at it
			}
			r.end(ctx)
		}
	})
}

// stopContainers stops all at once and tells whether the runtime did.
func (r *run) stopContainers(ctx context.Context, ids []string, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace+stopSlack)
	defer cancel()
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			seconds := int64((grace + time.Second - 1) / time.Second)
			if err := r.o.Runtime.StopContainer(ctx, id, seconds); err != nil && !notFound(err) {
				errs[i] = fmt.Errorf("stop container %s: %w", id, err)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		r.p.log.Warn("containers could not be stopped in order", "error", err)
		return false
	}
	return true
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
		for delay := retryDelay; ; delay = min(2*delay, lastDelay) {
			err := r.stopSandbox(ctx, id)
			if err == nil || ctx.Err() != nil {
				break
			}
			r.p.log.Warn("cannot stop the sandbox", "sandbox", id, "error", err)
			pause(ctx, delay)
		}
		return func() { r.busy, r.ended = false, true }
	})
}

func (r *run) stopSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stopSlack)
	defer cancel()
	if err := r.o.Runtime.StopPodSandbox(ctx, id); err != nil && !notFound(err) {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	return nil
}

// Delete removes the pod's containers, sandboxes and logs. What is gone already
// is no error. It must not be called while Run runs.
func (p *Pod) Delete(ctx context.Context) error {
	if err := p.remove(ctx); err != nil {
		return fmt.Errorf("delete pod %s: %w", p.pod.Name, err)
	}
	if p.options.LogDir != "" {
		if err := os.RemoveAll(p.options.LogDir); err != nil {
			return fmt.Errorf("delete pod %s: logs: %w", p.pod.Name, err)
		}
	}
	return nil
}

func (p *Pod) remove(ctx context.Context) error {
	sandboxes, err := p.sandboxes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, sandbox := range sandboxes {
		if err := p.options.Runtime.StopPodSandbox(ctx, sandbox.GetId()); err != nil && !notFound(err) {
			errs = append(errs, fmt.Errorf("stop sandbox %s: %w", sandbox.GetId(), err))
		}
	}
	containers, err := p.listContainers(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, container := range containers {
		if err := p.options.Runtime.RemoveContainer(ctx, container.GetId()); err != nil && !notFound(err) {
			errs = append(errs, fmt.Errorf("remove container %s: %w", container.GetId(), err))
		}
	}
	for _, sandbox := range sandboxes {
		if err := p.options.Runtime.RemovePodSandbox(ctx, sandbox.GetId()); err != nil && !notFound(err) {
			errs = append(errs, fmt.Errorf("remove sandbox %s: %w", sandbox.GetId(), err))
		}
	}
	return errors.Join(errs...)
}

func notFound(err error) bool { return err != nil && status.Code(err) == codes.NotFound }
