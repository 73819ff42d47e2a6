package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/unwind"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim"
)

// Reaped counts the results of a reap.
type Reaped struct {
	Adopted int      // pods with a new shim after theirs died
	Removed int      // unfinished and leftover pods
	Failed  []string // failures, to be retried
}

// Found returns the result of Open's own Reap.
func (e *Engine) Found() Reaped { return e.found }

// Reap adopts pods without a shim and undoes the remains of crashes, in this engine's instance only. It may be
// called at any time, and Open calls it. It skips pods that are being created or removed. Its error concerns the
// store as a whole; errors of single pods are in Reaped.
func (e *Engine) Reap(ctx context.Context) (Reaped, error) {
	var r Reaped
	names, err := e.store.Names()
	if err != nil {
		return r, failure.Wrap(err, "reap")
	}
	ids, err := e.store.PodIDs()
	if err != nil {
		return r, failure.Wrap(err, "reap")
	}
	held := map[string]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	turns := make(chan struct{}, reapAtOnce)
	for _, id := range ids {
		held[id] = true
		if e.busy(id) {
			continue
		}
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			what, err := e.reapPod(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				r.Failed = append(r.Failed, fmt.Sprintf("%s: %v", shortid.Of(id), err))
				e.log.Error("reap a pod", "pod", id, "error", err)
			case what == adopted:
				r.Adopted++
			case what == removed:
				r.Removed++
			}
		})
	}
	all.Wait()
	for _, name := range names {
		// A name without a record is left by a crash before the first record or after the last.
		if held[name.ID] || e.busy(name.ID) {
			continue
		}
		if err := e.discard(ctx, name.ID, name.Key); err != nil {
			r.Failed = append(r.Failed, fmt.Sprintf("%s: %v", shortid.Of(name.ID), err))
			continue
		}
		r.Removed++
	}
	if err := e.groups.Reap(ctx, func(id string) bool { return held[id] || e.busy(id) }); err != nil {
		r.Failed = append(r.Failed, err.Error())
	}
	if err := e.named.Reap(ctx); err != nil {
		r.Failed = append(r.Failed, err.Error())
	}
	if err := e.kinds.VMs.Reap(ctx); err != nil {
		r.Failed = append(r.Failed, err.Error())
	}
	for event, n := range map[measure.Event]int{
		measure.LeakAdopted: r.Adopted, measure.LeakRemoved: r.Removed, measure.LeakFailed: len(r.Failed),
	} {
		e.o.Observer.Count(event, n)
	}
	return r, nil
}

// reapAgain reaps for as long as the engine is open. It also makes the network collect the resources of removed
// pods, once at first and after each reap that removed something.
func (e *Engine) reapAgain() {
	tick := time.NewTicker(cmp.Or(e.o.ReapEvery, time.Minute))
	defer tick.Stop()
	due := e.collect()
	for {
		select {
		case <-tick.C:
			r, err := e.Reap(e.ctx)
			if err != nil && e.ctx.Err() == nil {
				e.log.Error("reap", "error", err)
			}
			if due || r.Removed > 0 {
				due = e.collect()
			}
		case <-e.ctx.Done():
			return
		}
	}
}

// collect makes the pods' network free the resources of removed pods. It reports whether to try again.
func (e *Engine) collect() (again bool) {
	if e.o.CNI == nil {
		return false
	}
	err := e.kinds.Networks.Collect(e.ctx, network.KindCNI, func(id string) bool {
		if e.busy(id) {
			return true
		}
		_, err := e.store.Pod(id)
		return !errors.Is(err, fs.ErrNotExist)
	})
	if err != nil && e.ctx.Err() == nil {
		e.log.Warn("free unused resources of the network", "error", err)
	}
	return err != nil
}

// reapAtOnce is how many pods are reaped concurrently, so that one that hangs does not hold up the others.
const reapAtOnce = 16

type reaped int

const (
	nothing reaped = iota
	found          // a pod that keeps running
	adopted        // a pod with a new shim
	removed
)

// reapPod reaps one pod on disk that the engine does not hold.
func (e *Engine) reapPod(ctx context.Context, id string) (reaped, error) {
	record, err := e.store.Pod(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nothing, nil // removed meanwhile
	}
	if err != nil {
		// The pod's state is unknown without its record, so the pod is ended.
		e.log.Warn("a pod's record is damaged; the pod is removed", "pod", id, "error", err)
		return removed, e.discard(ctx, id, "")
	}
	if record.Phase != store.Ready && record.Phase != store.Stopped {
		return removed, e.discard(ctx, id, record.Key)
	}
	p := newPod(e, record)
	if err := p.load(); err != nil {
		return nothing, err
	}
	if record.Phase == store.Stopped {
		p.recordExits(time.Now(), sandbox.ReasonVMKilled, "its pod was stopped")
		e.hold(p)
		return found, nil
	}
	return e.adoptPod(ctx, p)
}

// adoptPod connects to a ready pod's shim, or starts a new one. It stops a pod without a VM.
func (e *Engine) adoptPod(ctx context.Context, p *pod) (reaped, error) {
	ctx, cancel := context.WithTimeout(ctx, unwind.Timeout)
	defer cancel()
	fresh, err := p.connect(ctx)
	// Clients see the pod in any case: the engine keeps trying as long as it lives.
	e.hold(p)
	p.resumeDatagrams(ctx)
	e.spawn(p.watchShim)
	e.spawn(func() { // restores the pod's network, and retries as long as the pod is in it
		if _, err := e.kinds.Networks.Of(networks.KindOf(p.snapshot().VM)); err != nil {
			e.log.Warn("restore a pod's network", "pod", p.id, "error", err)
		}
	})
	if err != nil || !fresh {
		return found, err
	}
	return adopted, nil
}

// connect connects a ready pod to its shim and reconciles with it. It reports whether the shim is a new one.
func (p *pod) connect(ctx context.Context) (fresh bool, err error) {
	for {
		c, fresh, err := p.e.reach(ctx, p)
		if err != nil || c == nil {
			return false, err // without an error the pod has ended, and its record says so
		}
		if err = p.reconcile(ctx, c); err == nil {
			if fresh {
				if err := p.republish(ctx, c); err != nil {
					p.e.log.Warn("publish a pod's ports again", "pod", p.id, "error", err)
				}
			}
			p.mu.Lock()
			p.conn, p.stuck = c, nil
			p.wake()
			p.mu.Unlock()
			return fresh, nil
		}
		// A shim that was just killed still accepts connections for a moment.
		_ = c.Close()
		if fresh || !lost(err) || ctx.Err() != nil {
			return false, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// reach connects to the shim of a ready pod. It starts a new one (fresh) if the shim has died. A pod without state,
// as after a reboot, has ended: reach then returns no connection and no error.
func (e *Engine) reach(ctx context.Context, p *pod) (c *link.Conn, fresh bool, err error) {
	dir := e.store.StateDir(p.id)
	c, err = e.shims.Connect(ctx, dir)
	if err == nil {
		return c, false, nil
	}
	if !errors.Is(err, shim.ErrNotRunning) {
		return nil, false, err
	}
	if !hasState(dir) {
		p.recordExits(time.Now(), sandbox.ReasonVMKilled, "its VM is gone")
		err := p.update(func(r *store.Pod) { r.Exit = "the VM is gone: the host was rebooted, or the VM was killed" })
		return nil, false, err
	}
	o, closeFiles, err := p.adoptOptions(ctx)
	if err != nil {
		return nil, false, err
	}
	defer closeFiles()
	c, err = e.shims.Adopt(ctx, o)
	return c, err == nil, err
}

// discard undoes a pod that clients have not seen, or that cannot be kept.
func (e *Engine) discard(ctx context.Context, id, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*unwind.Timeout)
	defer cancel()
	if err := e.unwinder.Undo(ctx, id); err != nil {
		return err
	}
	if key != "" {
		return e.store.Release(key, id)
	}
	names, err := e.store.Names()
	for _, n := range names {
		if n.ID == id {
			err = errors.Join(err, e.store.Release(n.Key, id))
		}
	}
	return err
}

// load reads the pod's containers. It drops a container without a complete record: clients have never seen it.
func (p *pod) load() error {
	stored, broken, err := p.e.store.Containers(p.id)
	if err != nil {
		return err
	}
	for id, why := range broken {
		if !errors.Is(why, fs.ErrNotExist) {
			p.e.log.Warn("a container's record is damaged; the container is removed", "pod", p.id, "container", id, "error", why)
		}
		if err := p.e.store.DropContainer(p.id, id); err != nil {
			return err
		}
	}
	for _, st := range stored {
		p.containers[st.ID] = &container{pod: p, Stored: st, loaded: true}
	}
	return nil
}
