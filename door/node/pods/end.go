package pods

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// endSlack is what an end may take beside its grace before it counts as failed, and begins
// again.
const endSlack = 2 * time.Minute

// end ends a pod, and removes it if remove says so, beside the workers. An end that is under way goes on, and
// gets a shorter grace if this one is; when it is over the pod is looked at again.
func (c *Controller) end(ctx context.Context, uid types.UID, grace int64, remove bool) {
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
			c.hurry(ctx, uid, grace)
			return
		}
		err := c.carryOut(ctx, uid, grace, remove)
		c.mu.Lock()
		delete(c.ending, uid)
		c.mu.Unlock()
		if err == nil {
			c.pauses.Forget(uid)
			c.queue.Add(uid) // its object goes now
			return
		}
		if ctx.Err() == nil {
			c.o.Logger.Warn("the end of a pod is tried again", "uid", uid, "error", err)
		}
		c.queue.AddAfter(uid, c.pauses.When(uid))
	})
}

// hurry shortens an end that is under way, whose own goroutine does the rest.
func (c *Controller) hurry(ctx context.Context, uid types.UID, grace int64) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(grace)*time.Second+endSlack)
	defer cancel()
	if err := c.o.Runner.Stop(ctx, uid, grace); err != nil && ctx.Err() == nil {
		c.o.Logger.Warn("the end of a pod could not be shortened", "uid", uid, "error", err)
	}
}

// carryOut stops a pod, tells how it ended, and removes it if remove says so.
func (c *Controller) carryOut(ctx context.Context, uid types.UID, grace int64, remove bool) error {
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
