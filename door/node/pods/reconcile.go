package pods

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// reconcile does what the pod of that UID needs. An error has it tried again.
func (c *Controller) reconcile(ctx context.Context, uid types.UID) error {
	pod, there := c.o.Source.Get(uid), c.o.Runner.Has(uid)
	switch {
	case pod == nil && !there:
		c.forget(uid)
		return nil
	case pod == nil:
		return c.orphan(ctx, uid)
	case Static(uid) && there && c.wasGone(uid):
		c.end(ctx, uid, graceOf(pod), true) // and then it is run anew
		return nil
	case pod.DeletionTimestamp != nil && there:
		c.end(ctx, uid, graceOf(pod), true)
		return nil
	case pod.DeletionTimestamp != nil:
		return c.delete(ctx, pod)
	case there:
		// What has become of it may have been found before the API server was heard.
		c.o.Reporter.Changed(uid)
		if c.o.Runner.Revivable(uid) {
			return c.revive(ctx, pod)
		}
		if c.o.Runner.HasEnded(uid) {
			c.o.Admission.Release(uid)
		} else if ended(pod) { // somebody else has said so, and it is not to run on
			c.end(ctx, uid, graceOf(pod), false)
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
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// wasGone tells whether a pod's source has had it no more since it was run. A file that is put back has the UID of before.
func (c *Controller) wasGone(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, gone := c.deleted[uid]
	return gone
}

// run starts a pod that is new here.
func (c *Controller) run(ctx context.Context, pod *corev1.Pod) error {
	c.mu.Lock()
	if _, gone := c.deleted[pod.UID]; gone { // of an earlier run
		delete(c.deleted, pod.UID)
		delete(c.rejected, pod.UID)
	}
	before, rejected := c.rejected[pod.UID]
	c.mu.Unlock()
	if rejected && !Waits(pod, before.Reason) { // the source may not know yet that it has failed
		return c.reject(ctx, pod, &before)
	}
	if no := c.o.Admission.Admit(pod); no != nil {
		return c.turnAway(ctx, pod, no)
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

// turnAway rejects a pod, or has it be looked at again when there is room for it, in the place of others. Room is made beside the
// workers.
func (c *Controller) turnAway(ctx context.Context, pod *corev1.Pod, no *Rejection) error {
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

// revive runs a pod again that has ended for a reason that has passed, if the node takes it now.
func (c *Controller) revive(ctx context.Context, pod *corev1.Pod) error {
	if no := c.o.Admission.Admit(pod); no != nil {
		c.o.Admission.Release(pod.UID) // of its last run
		return c.turnAway(ctx, pod, no)
	}
	if err := c.o.Runner.Revive(ctx, pod.UID); err != nil {
		return fmt.Errorf("run pod %s/%s again: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// reject fails a pod that the node does not take, or has it wait: it is tried again when it is woken, and now and then.
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

// orphan ends a pod that the source does not have: one whose deletion was seen, or that
// was seen twice without it. The source itself is asked before.
func (c *Controller) orphan(ctx context.Context, uid types.UID) error {
	given := c.o.Runner.Given(uid)
	if given == nil {
		return nil // gone meanwhile
	}
	live, err := c.o.Source.Live(ctx, given.Namespace, given.Name, uid)
	if err != nil {
		return fmt.Errorf("ask for pod %s/%s: %w", given.Namespace, given.Name, err)
	}
	if live {
		c.forgetSighting(uid)
		return fmt.Errorf("pod %s/%s is unknown and is there", given.Namespace, given.Name)
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
	c.end(ctx, uid, *grace, true)
	return nil
}

// delete removes the object of a pod of which nothing is left here.
func (c *Controller) delete(ctx context.Context, pod *corev1.Pod) error {
	if !ended(pod) {
		// Controllers count on an end that is told before the object goes.
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

// forget drops what is kept of a pod that is nowhere any more.
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
