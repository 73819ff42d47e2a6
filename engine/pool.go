package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/rehearsal"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// pool keeps clones ready: shims whose machine runs, has rehearsed a pod and
// has been given none yet. It holds members of one kind, the one that was
// wanted last.
type pool struct {
	e    *Engine
	size int

	mu      sync.Mutex
	kind    kind
	members []*member // the ready ones first
	filling bool
	making  chan struct{} // closed when a member that is being made can be taken; nil when none is
	closed  bool
	now     chan struct{} // ends the pause before filling; holds one
	image   *os.File      // what members rehearse with; nil before the first
}

// member is a clone in waiting. Its id becomes its pod's.
type member struct {
	record   store.Pod
	conn     *link.Conn
	attached network.Attachment
}

// quiet is how long the pool leaves a new container the host's processors. The
// end of a pod ends it.
const quiet = 500 * time.Millisecond

func (p *pool) init(e *Engine) {
	p.e, p.size, p.now = e, e.o.Pool, make(chan struct{}, 1)
	if p.size == 0 {
		p.size = 1
	}
}

// take returns a member for a pod of kind k whose shim lives, or nil. One that
// still rehearses, or is just being made, is as good as a machine that would be
// started now. It is the caller's from then on.
func (p *pool) take(ctx context.Context, k kind) *member {
	for {
		p.mu.Lock()
		m, wait := p.pick(k), p.making != nil && p.fits(k)
		making := p.making
		p.mu.Unlock()
		if m != nil || !wait {
			return m
		}
		select {
		case <-making:
		case <-ctx.Done():
			return nil
		}
	}
}

// fits tells whether members are for pods of kind k, which get no more than
// they ask for. It is called with mu held.
func (p *pool) fits(k kind) bool { return p.kind.machine == k.machine && p.kind.memory <= k.memory }

// pick is called with mu held.
func (p *pool) pick(k kind) *member {
	if !p.fits(k) {
		return nil
	}
	for len(p.members) > 0 {
		last := p.members[0]
		p.members = p.members[1:]
		select {
		case <-last.conn.Done:
			if !p.giveUp(last) {
				return nil
			}
		default:
			return last
		}
	}
	return nil
}

// want has the pool hold members of a kind from the next refill on. Members of
// another kind are given up.
func (p *pool) want(k kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size < 0 || p.closed || p.kind == k {
		return
	}
	old := p.members
	p.kind, p.members = k, nil
	for _, m := range old {
		p.giveUp(m)
	}
}

// refill fills the pool, in the background: at once when a pod has ended, else
// in a while, for a pod whose start it must not get in the way of.
func (p *pool) refill(at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size < 0 || p.closed || p.kind == (kind{}) {
		return
	}
	if p.filling {
		if at == 0 {
			select {
			case p.now <- struct{}{}:
			default:
			}
		}
		return
	}
	select {
	case <-p.now: // which came too late for the last time
	default:
	}
	p.filling = p.e.spawn(func() {
		pause := time.NewTimer(at)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-p.now:
		case <-p.e.ctx.Done():
		}
		p.fill(p.e.ctx)
	})
}

func (p *pool) fill(ctx context.Context) {
	for {
		p.mu.Lock()
		k, enough := p.kind, len(p.members) >= p.size || p.closed || ctx.Err() != nil
		p.filling = !enough
		if enough {
			p.mu.Unlock()
			return
		}
		p.making = make(chan struct{})
		p.mu.Unlock()
		if err := p.add(ctx, k); err != nil {
			if ctx.Err() == nil {
				p.e.log.Warn("make a machine for the pool", "error", err)
			}
			p.mu.Lock()
			p.filling = false // the next pod tries again
			p.mu.Unlock()
			return
		}
	}
}

// add makes a member, which may be taken while it rehearses.
func (p *pool) add(ctx context.Context, k kind) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	m, err := p.make(ctx, k)
	p.mu.Lock()
	wanted := err == nil && p.kind == k && !p.closed
	if wanted {
		p.members = append(p.members, m)
	}
	close(p.making)
	p.making = nil
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if !wanted {
		p.discard(ctx, m)
		return nil
	}
	_, err = m.conn.Ext.Status(ctx, &shimv1.StatusRequest{Booted: true})
	if err == nil || !p.remove(m) {
		return nil // whoever has taken it sees what is wrong with it
	}
	p.discard(ctx, m)
	return fmt.Errorf("rehearse: %w", err)
}

// remove takes a member out and tells whether it was still there.
func (p *pool) remove(m *member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.members, m)
	if i < 0 {
		return false
	}
	p.members = slices.Delete(p.members, i, i+1)
	return true
}

func (p *pool) make(ctx context.Context, k kind) (_ *member, err error) {
	e, m := p.e, k.machine
	id := store.NewID()
	made := &member{record: store.Pod{ID: id, Key: poolKey(id), Phase: store.Pooled, Created: time.Now(), Machine: m, MemoryMiB: k.memory}}
	var rollback undo.Stack
	defer rollback.OnError(ctx, &err)
	e.work(id, true)
	rollback.Push("mark", func(context.Context) error { e.work(id, false); return nil })
	provider, err := e.networks.Of(networks.KindOf(m))
	if err != nil {
		return nil, err
	}
	rollback.Push("name", func(context.Context) error { return e.store.Release(made.record.Key, id) })
	if err := e.store.Reserve(made.record.Key, id); err != nil {
		return nil, err
	}
	fault.Point("pool.reserved")
	rollback.Push("sandbox", func(ctx context.Context) error { return e.unwind(ctx, id) })
	if err := e.store.MakePod(id); err != nil {
		return nil, err
	}
	if err := e.store.PutPod(&made.record); err != nil {
		return nil, err
	}
	fault.Point("pool.recorded")
	if made.attached, err = e.attach(ctx, provider, network.Request{ID: id}); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if made.conn, err = e.startShim(ctx, &made.record, made.attached, false, nil); err != nil {
		return nil, fmt.Errorf("start the shim: %w", err)
	}
	fault.Point("pool.made")
	rollback.Push("connection", func(context.Context) error { return made.conn.Close() })
	if err := p.rehearse(ctx, made, k.memory); err != nil {
		return nil, fmt.Errorf("rehearse: %w", err)
	}
	return made, nil
}

// rehearse begins a member's rehearsal.
func (p *pool) rehearse(ctx context.Context, m *member, memory int) error {
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	if p.image == nil {
		image, err := rehearsal.Image()
		if err != nil {
			return err
		}
		p.image = image
	}
	script, err := rehearsal.Script()
	if err != nil {
		return err
	}
	script.MemoryMiB, script.Network = memory, guestNetwork(m.record.ID, m.attached)
	options, err := json.Marshal(script)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if err := p.e.sendScratch(ctx, m.record.ID, m.conn, disks.Default); err != nil {
		return err
	}
	if err := m.conn.SendFile(ctx, layout.RehearsalImage, p.image); err != nil {
		return err
	}
	_, err = m.conn.Ext.Rehearse(ctx, &shimv1.RehearseRequest{Options: options})
	return err
}

// poolKey is the name that holds a member's id while it is nobody's pod.
func poolKey(id string) string { return "pool//" + id }

// giveUp has a member ended. When the engine is being closed it leaves that to
// drain and says so. It is called with mu held.
func (p *pool) giveUp(m *member) bool {
	if p.e.spawn(func() { p.discard(p.e.ctx, m) }) {
		return true
	}
	p.members = append(p.members, m)
	return false
}

// discard ends a member. What fails is left for Reap.
func (p *pool) discard(ctx context.Context, m *member) {
	if err := p.drop(ctx, m); err != nil {
		p.e.log.Warn("end a machine of the pool", "id", m.record.ID, "error", err)
	}
}

func (p *pool) drop(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	defer p.e.work(m.record.ID, false)
	_ = m.conn.Close()
	if err := p.e.unwind(ctx, m.record.ID); err != nil {
		return err
	}
	return p.e.store.Release(m.record.Key, m.record.ID)
}

// drain ends all members and lets none be made any more.
func (p *pool) drain(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	members := p.members
	p.members = nil
	p.mu.Unlock() // nothing is being made any more
	if p.image != nil {
		p.image.Close()
	}
	var errs []error
	for _, m := range members {
		errs = append(errs, p.drop(ctx, m))
	}
	return errors.Join(errs...)
}
