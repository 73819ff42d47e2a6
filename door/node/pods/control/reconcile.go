package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// reconcile does the next step for the pod with that UID. If it returns an error, it is retried.
func (c *Controller) reconcile(ctx context.Context, uid types.UID) error {
	pod, there := c.o.Source.Get(uid), c.o.Runner.Has(uid)
	switch {
	case pod == nil && !there:
		c.forget(uid)
		return nil
	case pod == nil:
		return c.orphan(ctx, uid)
	case Static(uid) && there && c.wasGone(uid):
		c.startEnd(ctx, uid, graceOf(pod), true) // then it is run again
		return nil
	case pod.DeletionTimestamp != nil && there:
		c.startEnd(ctx, uid, graceOf(pod), true)
		return nil
	case pod.DeletionTimestamp != nil:
		return c.delete(ctx, pod)
	case there:
		// Its status may have changed before the API server answered for the first time.
		c.o.Reporter.Changed(uid)
		if c.o.Runner.Revivable(uid) {
			return c.revive(ctx, pod)
		}
		if c.o.Runner.HasEnded(uid) {
			c.o.Admission.Release(uid)
		} else if ended(pod) { // another client set the phase, so the pod must not run on
			c.startEnd(ctx, uid, graceOf(pod), false)
			return nil
		}
		err := c.o.Runner.Update(ctx, pod)
		if errors.Is(err, ErrWaits) {
			c.queue.AddAfter(uid, waitPause)
			return nil
		}
		return err
	case ended(pod):
		return nil
	}
	return c.run(ctx, pod)
}

func graceOf(pod *corev1.Pod) int64 {
	if own := pod.DeletionGracePeriodSeconds; own != nil {
		return *own
	}
	return int64(podspec.Grace(&pod.Spec) / time.Second)
}

// wasGone reports whether the source dropped the pod since it was run. A file that returns keeps its UID.
func (c *Controller) wasGone(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, gone := c.deleted[uid]
	return gone
}

// run starts a new pod.
func (c *Controller) run(ctx context.Context, pod *corev1.Pod) error {
	c.mu.Lock()
	if _, gone := c.deleted[pod.UID]; gone { // from an earlier run
		delete(c.deleted, pod.UID)
		delete(c.rejected, pod.UID)
	}
	before, rejected := c.rejected[pod.UID]
	c.mu.Unlock()
	if rejected && !Waits(pod, before.Reason) { // the source may not know yet that the pod failed
		return c.reject(ctx, pod, &before)
	}
	if no := c.o.Admission.Admit(pod); no != nil {
		return c.preemptOrReject(ctx, pod, no)
	}
	err := c.o.Runner.Run(ctx, pod)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrWaits):
		c.queue.AddAfter(pod.UID, waitPause)
		return nil
	case errors.Is(err, ErrRejected):
		c.o.Admission.Release(pod.UID)
		return c.reject(ctx, pod, &Rejection{unsupported, err.Error()})
	}
	c.o.Events.Event(pod, corev1.EventTypeWarning, "FailedSync", err.Error())
	return fmt.Errorf("run pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// preemptOrReject rejects a pod, or retries it later if other pods make room for it. Making room runs beside the
// workers.
func (c *Controller) preemptOrReject(ctx context.Context, pod *corev1.Pod, no *Rejection) error {
	if c.o.Preempt == nil {
		return c.reject(ctx, pod, no)
	}
	end, again := c.o.Preempt(pod, no.Reason)
	switch {
	case !again:
		return c.reject(ctx, pod, no)
	case end == nil:
		c.queue.AddAfter(pod.UID, waitPause)
		return nil
	}
	c.ends.Go(func() {
		end(ctx)
		c.queue.Add(pod.UID)
	})
	return nil
}

// revive runs a pod again if its reason for ending has passed and the node accepts it now.
func (c *Controller) revive(ctx context.Context, pod *corev1.Pod) error {
	if no := c.o.Admission.Admit(pod); no != nil {
		c.o.Admission.Release(pod.UID) // of its last run
		return c.preemptOrReject(ctx, pod, no)
	}
	if err := c.o.Runner.Revive(ctx, pod.UID); err != nil {
		return fmt.Errorf("run pod %s/%s again: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// reject sets a rejected pod to Failed. A pod that may wait is retried when it is woken, and from time to time.
func (c *Controller) reject(ctx context.Context, pod *corev1.Pod, no *Rejection) error {
	c.mu.Lock()
	known := c.rejected[pod.UID].Reason == no.Reason
	c.rejected[pod.UID] = *no
	c.mu.Unlock()
	if !known {
		c.o.Events.Event(pod, corev1.EventTypeWarning, no.Reason, no.Message)
	}
	if !c.o.Runner.Has(pod.UID) {
		c.o.Runner.Forget(pod.UID)
	}
	if Waits(pod, no.Reason) {
		c.queue.AddAfter(pod.UID, lastPause)
	}
	return c.o.Reporter.Fail(ctx, pod, no.Reason, "Pod was rejected: "+no.Message)
}

// orphan ends a pod that is missing in the source. Either its deletion was seen, or two checks found it missing. It
// asks the source itself first.
func (c *Controller) orphan(ctx context.Context, uid types.UID) error {
	given := c.o.Runner.Spec(uid)
	if given == nil {
		return nil // gone by now
	}
	live, err := c.o.Source.Live(ctx, given.Namespace, given.Name, uid)
	if err != nil {
		return fmt.Errorf("look up pod %s/%s: %w", given.Namespace, given.Name, err)
	}
	if live {
		c.forgetSighting(uid)
		return fmt.Errorf("pod %s/%s exists but is not in the cache yet", given.Namespace, given.Name)
	}
	c.mu.Lock()
	grace, deleted := c.deleted[uid]
	first, sighted := c.seen[uid]
	if !sighted {
		c.seen[uid] = time.Now()
	}
	c.mu.Unlock()
	if wait := c.o.OrphanPause - time.Since(first); !deleted && (!sighted || wait > 0) {
		c.queue.AddAfter(uid, min(c.o.OrphanPause, max(wait, 0)+c.o.OrphanPause/10))
		return nil
	}
	if grace == nil {
		own := graceOf(given)
		grace = &own
	}
	c.startEnd(ctx, uid, *grace, true)
	return nil
}

// delete deletes the object of a pod after everything of it was removed here.
func (c *Controller) delete(ctx context.Context, pod *corev1.Pod) error {
	if !ended(pod) {
		// Controllers expect a terminal phase before the object is deleted.
		if err := c.o.Reporter.Fail(ctx, pod, "", "The pod was deleted before it was started"); err != nil {
			return err
		}
	}
	fault.Point("node.deleting")
	if err := c.o.Source.Delete(ctx, pod); err != nil {
		return err
	}
	fault.Point("node.deleted")
	return nil
}

// forget drops the notes about a pod that no longer exists anywhere.
func (c *Controller) forget(uid types.UID) {
	c.pauses.Forget(uid)
	c.forgetSighting(uid)
	c.mu.Lock()
	delete(c.deleted, uid)
	delete(c.rejected, uid)
	c.mu.Unlock()
	c.o.Admission.Release(uid)
	c.o.Reporter.Forget(uid)
	c.o.Runner.Forget(uid)
}

func (c *Controller) forgetSighting(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, uid)
}
