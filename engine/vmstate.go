package engine

import (
	"context"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// vmState is the record of a pod and the connection to its shim. A change of the record is on disk before anyone sees
// it, except by setState.
type vmState struct {
	id    string
	store *store.Store
	over  <-chan struct{} // closed when the engine ends

	mu      sync.Mutex
	record  store.Pod
	conn    *link.Conn    // nil when there is no shim
	renewed chan struct{} // closed and replaced when conn, stuck or record change
	stuck   error         // the last error of starting a new shim
	paused  bool
	pauses  uint64 // how often the VM was paused
	ending  bool   // the VM is being ended: it needs no new shim
	gone    bool   // removed: for callers that found it before
}

// snapshot returns a copy of the record.
func (p *vmState) snapshot() store.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record
}

// ended reports whether the pod's VM has ended or is being ended. The pod then only has to be stopped.
func (p *vmState) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record.Exit != "" || p.ending
}

// removed reports whether the pod was removed.
func (p *vmState) removed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// release closes the connection to the shim. The pod keeps running.
func (p *vmState) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
}

// update changes the record and stores it.
func (p *vmState) update(change func(*store.Pod)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.record
	change(&next)
	if err := p.store.PutPod(&next); err != nil {
		return err
	}
	p.record = next
	p.wake()
	return nil
}

// setState is like update, but changes the record even if it cannot be stored. The error concerns the storing only.
func (p *vmState) setState(change func(*store.Pod)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.setStateLocked(change)
}

// setStateLocked is called with mu held.
func (p *vmState) setStateLocked(change func(*store.Pod)) error {
	change(&p.record)
	p.wake()
	return p.store.PutPod(&p.record)
}

// wake notifies the goroutines that wait for a change of conn or record; the caller holds mu.
func (p *vmState) wake() {
	close(p.renewed)
	p.renewed = make(chan struct{})
}

// shim returns the connection to the pod's shim. It returns an error if there is none.
func (p *vmState) shim() (*link.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return nil, p.notReady()
	}
	return p.conn, nil
}

// notReady is called with mu held.
func (p *vmState) notReady() error {
	why := p.record.Exit
	if why == "" {
		why = string(p.record.Phase)
		if p.record.Phase == store.Ready {
			why = "its shim is being replaced"
			if p.stuck != nil {
				why = "its shim has died, and a new one cannot be started: " + p.stuck.Error()
			}
		}
	}
	return failure.New(errdefs.ErrFailedPrecondition, "pod %s is not ready: %s", shortid.Of(p.id), why)
}

// live returns the connection to the pod's shim. It waits while a dead shim is being replaced.
func (p *vmState) live(ctx context.Context) (*link.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	for {
		p.mu.Lock()
		c, renewed := p.conn, p.renewed
		if p.record.Phase != store.Ready || p.record.Exit != "" || p.ending || p.gone || c == nil && p.stuck != nil {
			defer p.mu.Unlock()
			return nil, p.notReady()
		}
		p.mu.Unlock()
		if c != nil {
			select {
			case <-c.Done:
			default:
				return c, nil
			}
		}
		select {
		case <-renewed:
		case <-p.over:
			return nil, errClosed
		case <-ctx.Done():
			return nil, failure.Wrap(ctx.Err(), "wait for another shim of pod %s", shortid.Of(p.id))
		}
	}
}

// ready is called with mu held.
func (p *vmState) ready() bool { return p.record.Phase == store.Ready && p.record.Exit == "" }

func (p *vmState) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused
}

func (p *vmState) setPaused(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
}

// awaitRecord waits until the record fulfils a condition. It returns false if ctx ends before.
func (p *vmState) awaitRecord(ctx context.Context, condition func(*store.Pod) bool) bool {
	for {
		p.mu.Lock()
		holds, renewed := condition(&p.record), p.renewed
		p.mu.Unlock()
		if holds {
			return true
		}
		select {
		case <-renewed:
		case <-ctx.Done():
			return false
		}
	}
}
