package manager

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Stop ends the pod within grace, in seconds (nil: the pod's own), and returns when it has ended. It succeeds if the
// pod has already ended. If this manager closes first, the next one continues the stop.
func (p *Pod) Stop(ctx context.Context, grace *int64) error {
	if p.HasEnded() {
		return nil
	}
	seconds := graceOf(p.Original(), grace)
	p.mu.Lock()
	if p.rec.Grace == nil || seconds < *p.rec.Grace {
		p.rec.Grace, p.rec.EndBy = &seconds, time.Now().Add(time.Duration(seconds)*time.Second)
	}
	p.rec.Stopping = true
	p.ending.Store(true)
	if err := p.save(); err != nil {
		// Stop the pod even so: the disk may be full.
		p.m.o.Logger.Warn("cannot save that a pod must end", "pod", p.Key(), "error", err)
	}
	p.mu.Unlock()
	if err := p.supervised().Stop(ctx, time.Duration(seconds)*time.Second); err != nil {
		return fmt.Errorf("stop pod %s: %w", p.Key(), err)
	}
	select {
	case <-p.Ended():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop pod %s: %w", p.Key(), ctx.Err())
	}
}

// claim reserves the right to start or remove the pod, until done is called. gone reports that the pod was removed
// before.
func (p *Pod) claim(ctx context.Context) (done func(), gone bool, err error) {
	select {
	case p.op <- struct{}{}:
	case <-ctx.Done():
		return nil, false, fmt.Errorf("pod %s is being started or removed: %w", p.Key(), ctx.Err())
	}
	return func() { <-p.op }, p.Removed(), nil
}

// ErrRuns is returned by Remove for a pod that has not ended.
var ErrRuns = errdefs.ErrConflict.WithMessage("runs")

// Remove deletes an ended pod with its files. With force it also kills a running one, without grace. It succeeds if the
// pod is already removed. For a running pod without force, the error is ErrRuns.
func (p *Pod) Remove(ctx context.Context, force bool) error {
	done, gone, err := p.claim(ctx)
	if err != nil {
		return err
	}
	defer done()
	if gone {
		return nil
	}
	if !p.HasEnded() {
		if !force {
			return fmt.Errorf("pod %s %w", p.Key(), ErrRuns)
		}
		if err := p.Stop(ctx, new(int64)); err != nil {
			return err
		}
	}
	if err := p.supervised().Delete(ctx); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.Key(), err)
	}
	return p.m.Discard(p)
}

// Start runs an ended pod again. Only its emptyDirs and its logs remain from its last run. The error is errdefs.ErrConflict
// if the pod runs or is damaged, and errdefs.ErrNotFound if it was removed.
func (p *Pod) Start(ctx context.Context) error {
	done, gone, err := p.claim(ctx)
	if err != nil {
		return err
	}
	defer done()
	if gone {
		return fmt.Errorf("pod %s: %w", p.Key(), errdefs.ErrNotFound)
	}
	if !p.HasEnded() {
		return errclass.New(errdefs.ErrConflict, "pod %s is already running", p.Key())
	}
	if err := p.Damaged(); err != nil {
		return err
	}
	earlier, err := p.supervised().Clear(ctx)
	if err != nil {
		return fmt.Errorf("start pod %s: remove what its last run left: %w", p.Key(), err)
	}
	if err := p.prepareRun(earlier); err != nil {
		return fmt.Errorf("start pod %s: %w", p.Key(), err)
	}
	p.Run()
	return nil
}

// prepareRun prepares and saves another run, which follows the run of the sandbox earlier. On an error nothing changes.
func (p *Pod) prepareRun(earlier string) error {
	p.mu.Lock()
	last := p.rec
	p.mu.Unlock()
	rec := last
	rec.Ephemeral = nil // they belonged to the last run
	rec.Earlier = earlier
	rec.Ended, rec.Foreground, rec.Stopping, rec.Grace, rec.EndBy = nil, false, false, nil, time.Time{}
	rec.Since, rec.Begun, rec.JobFailed, rec.Eviction, rec.Before = time.Now(), false, false, nil, nil
	next, err := p.prepare(rec, true)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rec = rec
	if err := p.save(); err != nil {
		p.rec = last
		return err
	}
	p.ending.Store(false)
	p.kept, p.freed = false, false
	p.p, p.done, p.err = next, make(chan struct{}), nil
	return nil
}
