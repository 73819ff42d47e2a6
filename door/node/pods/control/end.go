package control

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// endSlack is the time that an end may take beyond its grace before it counts as failed and is retried.
const endSlack = 2 * time.Minute

// startEnd ends a pod beside the workers, and removes it if remove is set. If the pod is already being ended, startEnd
// only shortens the grace. The pod is reconciled again afterwards.
func (c *Controller) startEnd(ctx context.Context, uid types.UID, grace int64, remove bool) {
	c.mu.Lock()
	before, under := c.ending[uid]
	if under && before <= grace {
		c.mu.Unlock()
		return
	}
	c.ending[uid] = grace
	c.mu.Unlock()
	c.ends.Go(func() {
		if under {
			c.shortenGrace(ctx, uid, grace)
			return
		}
		err := c.finishEnd(ctx, uid, grace, remove)
		c.mu.Lock()
		delete(c.ending, uid)
		c.mu.Unlock()
		if err == nil {
			c.pauses.Forget(uid)
			c.queue.Add(uid) // to delete its object
			return
		}
		if ctx.Err() == nil {
			c.o.Logger.Warn("retrying to end a pod", "uid", uid, "error", err)
		}
		c.queue.AddAfter(uid, c.pauses.When(uid))
	})
}

// shortenGrace shortens an end that another goroutine is carrying out.
func (c *Controller) shortenGrace(ctx context.Context, uid types.UID, grace int64) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(grace)*time.Second+endSlack)
	defer cancel()
	if err := c.o.Runner.Stop(ctx, uid, grace); err != nil && ctx.Err() == nil {
		c.o.Logger.Warn("cannot shorten the grace of a pod", "uid", uid, "error", err)
	}
}

// finishEnd stops a pod, reports its end, and removes it if remove is set.
func (c *Controller) finishEnd(ctx context.Context, uid types.UID, grace int64, remove bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(grace)*time.Second+endSlack)
	defer cancel()
	if err := c.o.Runner.Stop(ctx, uid, grace); err != nil {
		return err
	}
	if pod := c.o.Source.Get(uid); pod != nil {
		if err := c.o.Reporter.Report(ctx, pod); err != nil {
			return fmt.Errorf("report the end: %w", err)
		}
	}
	if !remove {
		return nil
	}
	if err := c.o.Runner.Remove(ctx, uid); err != nil {
		return err
	}
	c.o.Admission.Release(uid)
	return nil
}
