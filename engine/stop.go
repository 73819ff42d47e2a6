package engine

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/engine/process"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/unwind"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/sandbox/journal"
)

// StopPod ends a pod's VM with its containers, its shim and its network. It succeeds if the pod is stopped or does
// not exist. When ctx ends, StopPod returns and the stop continues.
func (e *Engine) StopPod(ctx context.Context, id string) error {
	p, err := e.find(id)
	if failure.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = e.do(ctx, "stop "+p.id, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*unwind.Timeout)
		defer cancel()
		return "", p.stop(ctx)
	})
	return err
}

// RemovePod removes a pod and its data on disk, and stops it first. It succeeds if the pod does not exist.
func (e *Engine) RemovePod(ctx context.Context, id string) error {
	p, err := e.find(id)
	if failure.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = e.do(ctx, "remove "+p.id, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*unwind.Timeout)
		defer cancel()
		return "", p.remove(ctx)
	})
	return err
}

// stop brings the pod to phase Stopped. Data that containers wrote to emptyDirs is on the scratch disk afterwards.
func (p *pod) stop(ctx context.Context) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.done()
	return p.stopLocked(ctx, true)
}

// stopLocked is called with op held. With flush, the guest writes its caches to a disk with emptyDirs. The guest
// unmounts block devices in any case, because they outlive the pod.
func (p *pod) stopLocked(ctx context.Context, flush bool) error {
	if p.snapshot().Phase != store.Ready {
		return nil
	}
	var parts phases
	ended := parts.begun("containers")
	p.endContainers(ctx)
	ended()
	fault.Point("stop.killed")
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	p.datagrams.Close()
	if flush && p.snapshot().Volumes || len(blocksPod{p}.Blocks("")) > 0 {
		flushed := parts.begun("flush")
		p.flush(ctx)
		flushed()
	}
	// The pod leaves its network while its VM ends.
	undone := parts.timed(p.e.unwinder.Handlers(p.id))
	if err := p.e.store.Journal(p.id).Undo(ctx, undone, unwind.Shim, unwind.Network); err != nil {
		return failure.Wrap(err, "stop pod %s", shortid.Of(p.id))
	}
	fault.Point("stop.undone")
	p.recordExits(time.Now(), sandbox.ReasonVMKilled, "its pod was stopped")
	if err := p.setState(func(r *store.Pod) {
		r.Phase, r.Stopped, r.Phases = store.Stopped, time.Now(), append(r.Phases, parts.took...)
	}); err != nil {
		// A reader of the old record finds no VM, and stops the pod again.
		p.e.log.Warn("record that a pod has stopped", "pod", p.id, "error", err)
	}
	fault.Point("stop.recorded")
	p.release()
	p.shares.Close()
	p.e.o.Observer.Stopped(parts.measured())
	p.e.emit(Stopped, p, p.id)
	return nil
}

// phases records the durations of the parts of a stop.
type phases struct {
	mu   sync.Mutex
	took []store.Timing
}

// begun starts a part and returns the function that ends it.
func (p *phases) begun(name string) func() {
	at := time.Now()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.took = append(p.took, store.Timing{Name: stopPrefix + name, Took: time.Since(at)})
	}
}

// stopPrefix distinguishes the parts of a stop from the phases of the start.
const stopPrefix = "stop: "

// measured returns the parts for an Observer.
func (p *phases) measured() (out []measure.Phase) {
	for _, t := range p.took {
		out = append(out, measure.Phase{Name: strings.TrimPrefix(t.Name, stopPrefix), Took: t.Took})
	}
	return out
}

// timed wraps each handler as a part of the stop.
func (p *phases) timed(all journal.Handlers) journal.Handlers {
	for kind, undo := range all {
		all[kind] = func(ctx context.Context, args json.RawMessage) error {
			defer p.begun(kind)()
			return undo(ctx, args)
		}
	}
	return all
}

// flushWait is the time for a guest to write its caches to its disk.
const flushWait = 10 * time.Second

// flush asks the guest to write its caches to its disk and end the VM. If it fails, the stop continues.
func (p *pod) flush(ctx context.Context) {
	c, err := p.shim()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	if _, err := c.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxID: p.id}); err != nil {
		p.e.log.Warn("the last writes of a pod may be lost", "pod", p.id, "error", err)
	}
}

// endContainers kills the running containers while the shim can still report their exits. If it fails, the stop
// continues.
func (p *pod) endContainers(ctx context.Context) {
	c, err := p.shim()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, unwind.ShimPatience)
	defer cancel()
	p.mu.Lock()
	paused := p.paused
	var running []*container
	for _, ctr := range p.containers {
		if ctr.Exit == nil && !paused {
			running = append(running, ctr)
		}
	}
	p.mu.Unlock()
	for _, ctr := range running {
		if err := process.Kill(ctx, c, ctr.ID, uint32(unix.SIGKILL), true); err != nil && !failure.NotFound(err) {
			p.e.log.Debug("kill a container of a pod that stops", "pod", p.id, "container", ctr.ID, "error", err)
			return
		}
	}
	for _, ctr := range running {
		waitCtx, cancel := context.WithTimeout(ctx, process.KillWait)
		_ = waitTask(waitCtx, c, ctr.ID)
		cancel()
	}
	_ = p.reconcile(ctx, c)
}

// remove removes the pod, stopping it first.
func (p *pod) remove(ctx context.Context) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.done()
	if p.removed() {
		return nil
	}
	if err := p.stopLocked(ctx, false); err != nil {
		return err
	}
	key := p.snapshot().Key
	if err := p.setState(func(r *store.Pod) { r.Phase = store.Removing }); err != nil {
		// The disk may be full, and the removal may free space.
		p.e.log.Warn("record that a pod is being removed", "pod", p.id, "error", err)
	}
	fault.Point("remove.marked")
	if err := p.e.unwinder.Undo(ctx, p.id); err != nil {
		return failure.Wrap(err, "remove pod %s", shortid.Of(p.id))
	}
	fault.Point("remove.unwound")
	if err := p.e.store.Release(key, p.id); err != nil {
		return failure.Wrap(err, "remove pod %s", shortid.Of(p.id))
	}
	fault.Point("remove.released")
	p.mu.Lock()
	p.gone = true
	ids := make([]string, 0, len(p.containers)+1)
	for id := range p.containers {
		ids = append(ids, id)
	}
	p.mu.Unlock()
	p.e.drop(p.id)
	for _, id := range append(ids, p.id) {
		p.e.emit(Deleted, p, id)
	}
	return nil
}
