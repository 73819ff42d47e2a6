package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Run supervises the pod, in a goroutine of the manager, until it has ended. Call it once after Add.
func (p *Pod) Run() {
	p.mu.Lock()
	supervised, done, resizing, generation, since := p.p, p.done, p.rec.Before != nil, p.rec.Generation, p.rec.Since
	p.mu.Unlock()
	if resizing {
		requested{p, done, generation}.awaitBeside(supervised)
	}
	release := func() {}
	if p.m.o.Hold != nil {
		release = p.m.o.Hold()
	}
	p.m.wg.Go(func() {
		defer release()
		stop := notesOf(p).remember(supervised, since)
		err := supervised.Run(p.m.ctx)
		p.door.Release()
		stop()
		p.m.failJob(p)
		remove := p.finish(err)
		p.m.wakeJob(p)
		if remove {
			defer p.m.detached.add(always)()
		}
		close(done)
		p.notifyChanged()
		if remove {
			if err := p.Remove(p.m.ctx, true); err != nil {
				p.m.o.Logger.Warn("cannot remove a pod", "pod", p.Key(), "error", err)
			}
		}
	})
}

// finish saves the outcome of a run, unless the manager closes, and reports whether the pod must be removed.
func (p *Pod) finish(err error) (remove bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	if p.m.ctx.Err() != nil {
		return false
	}
	status := p.p.Status()
	p.rec.Ended = &status
	unsaved := p.save()
	p.kept = unsaved == nil
	p.err = errors.Join(err, unsaved)
	fault.Point("pod.ended")
	if p.err != nil {
		p.m.o.Logger.Warn("a pod's supervision ended with an error", "pod", p.Key(), "error", p.err)
	}
	return p.rec.removesItself()
}

// release records that no client follows the pod any more. With remove, the supervision removes the pod at its end in
// place of the client. The caller's stop saves the record.
func (p *Pod) release(remove bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rec.Foreground = false
	p.rec.Remove = p.rec.Remove || remove
}

// StopAndRemoveAll ends pods of a lost client, or at a client's request. It ends them concurrently, each within its own
// grace, and removes them, without a time limit.
func (m *Manager) StopAndRemoveAll(pods []*Pod) error {
	for _, p := range pods {
		p.release(true)
	}
	var all sync.WaitGroup
	errs := make([]error, len(pods))
	for i, p := range pods {
		all.Go(func() { errs[i] = p.stopForGood(nil) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// endDetached ends a pod of an earlier manager that has lost its client or was being stopped.
func (p *Pod) endDetached() {
	p.release(false)
	rec := p.record()
	if err := p.stopForGood(rec.graceLeft()); err != nil && p.m.ctx.Err() == nil {
		p.m.o.Logger.Warn("cannot end the pod of a lost client", "pod", p.Key(), "error", err)
	}
}

// stopForGood stops the pod within grace, like Stop, and removes it if its record asks for that.
func (p *Pod) stopForGood(grace *int64) error {
	ctx, cancel := context.WithTimeout(p.m.ctx, EndTimeout(p.Original(), grace))
	defer cancel()
	if err := p.Stop(ctx, grace); err != nil {
		return err
	}
	p.mu.Lock()
	remove := p.rec.Remove
	p.mu.Unlock()
	if !remove {
		return nil
	}
	return p.Remove(ctx, true)
}

// EndTimeout returns a limit for the end of a pod: the longer of its own and the requested grace, in seconds, and one
// more minute.
func EndTimeout(p *corev1.Pod, asked *int64) time.Duration {
	grace := graceOf(p, nil)
	if asked != nil {
		grace = max(grace, *asked)
	}
	return time.Duration(grace)*time.Second + time.Minute
}

// graceOf returns the requested grace, in seconds, or the pod's own.
func graceOf(p *corev1.Pod, asked *int64) int64 {
	if asked != nil {
		return *asked
	}
	return int64(podspec.Grace(&p.Spec) / time.Second)
}
