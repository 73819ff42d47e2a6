package cri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/network"
)

// refillDelay keeps the making of the next member out of the way of the first
// container of the pod that took the last one.
const refillDelay = 400 * time.Millisecond

// pool keeps clones ready: shims whose machine runs and that have been given
// no pod yet. It holds members of one kind of machine, the one that was wanted
// last.
type pool struct {
	s    *Service
	size int

	mu      sync.Mutex
	machine hypervisor.Machine
	members []*member
	filling bool
	closed  bool
}

// member is a clone in waiting. Its id becomes its pod's.
type member struct {
	record   store.Pod
	conn     *conn
	attached network.Attachment
}

func (p *pool) init(s *Service) {
	p.s, p.size = s, s.o.Pool
	if p.size == 0 {
		p.size = 1
	}
}

// take returns a member that is such a machine and whose shim lives, or nil.
// It is the caller's from then on.
func (p *pool) take(m hypervisor.Machine) *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.machine != m {
		return nil
	}
	for len(p.members) > 0 {
		last := p.members[0]
		p.members = p.members[1:]
		select {
		case <-last.conn.done:
			p.s.spawn(func() { p.discard(p.s.ctx, last) })
		default:
			return last
		}
	}
	return nil
}

// refill fills the pool with machines like m, in the background and after a
// while. Members of another kind are given up.
func (p *pool) refill(m hypervisor.Machine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size < 0 || p.closed {
		return
	}
	var old []*member
	if p.machine != m {
		old, p.members, p.machine = p.members, nil, m
	}
	if p.filling && len(old) == 0 {
		return
	}
	start := !p.filling
	p.filling = true
	p.s.spawn(func() {
		for _, o := range old {
			p.discard(p.s.ctx, o)
		}
		if start {
			p.fill(p.s.ctx)
		}
	})
}

func (p *pool) fill(ctx context.Context) {
	defer func() {
		p.mu.Lock()
		p.filling = false
		p.mu.Unlock()
	}()
	for {
		select {
		case <-time.After(refillDelay):
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		m, enough := p.machine, len(p.members) >= p.size
		p.mu.Unlock()
		if enough {
			return
		}
		made, err := p.make(ctx, m)
		if err != nil {
			if ctx.Err() == nil {
				p.s.log.Warn("make a machine for the pool", "error", err)
			}
			return // the next pod tries again
		}
		p.mu.Lock()
		wanted := p.machine == m && !p.closed
		if wanted {
			p.members = append(p.members, made)
		}
		p.mu.Unlock()
		if !wanted {
			p.discard(ctx, made)
		}
	}
}

func (p *pool) make(ctx context.Context, m hypervisor.Machine) (_ *member, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s := p.s
	id := store.NewID()
	made := &member{record: store.Pod{ID: id, Key: poolKey(id), Phase: store.Pooled, Created: time.Now(), Machine: m}}
	var rollback undo.Stack
	defer rollback.OnError(ctx, &err)
	s.work(id, true)
	rollback.Push("mark", func(context.Context) error { s.work(id, false); return nil })
	kind := m.Network
	if kind == hypervisor.NetworkRestricted {
		kind = hypervisor.NetworkUser
	}
	provider, err := s.provider(kind)
	if err != nil {
		return nil, err
	}
	rollback.Push("name", func(context.Context) error { return s.store.Release(made.record.Key, id) })
	if err := s.store.Reserve(made.record.Key, id); err != nil {
		return nil, err
	}
	fault.Point("pool.reserved")
	rollback.Push("sandbox", func(ctx context.Context) error { return s.unwind(ctx, id) })
	if err := s.store.MakePod(id); err != nil {
		return nil, err
	}
	if err := s.store.PutPod(&made.record); err != nil {
		return nil, err
	}
	fault.Point("pool.recorded")
	if made.attached, err = s.attach(ctx, id, provider); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if made.conn, err = s.startShim(ctx, &made.record, made.attached, false); err != nil {
		return nil, fmt.Errorf("start the shim: %w", err)
	}
	fault.Point("pool.made")
	return made, nil
}

// poolKey is the name that holds a member's id while it is nobody's pod.
func poolKey(id string) string { return "pool//" + id }

// discard ends a member. What fails is left for Reap.
func (p *pool) discard(ctx context.Context, m *member) {
	if err := p.drop(ctx, m); err != nil {
		p.s.log.Warn("end a machine of the pool", "id", m.record.ID, "error", err)
	}
}

func (p *pool) drop(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	defer p.s.work(m.record.ID, false)
	_ = m.conn.close()
	if err := p.s.unwind(ctx, m.record.ID); err != nil {
		return err
	}
	return p.s.store.Release(m.record.Key, m.record.ID)
}

// drain ends all members and lets none be made any more.
func (p *pool) drain(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	members := p.members
	p.members = nil
	p.mu.Unlock()
	var errs []error
	for _, m := range members {
		errs = append(errs, p.drop(ctx, m))
	}
	return errors.Join(errs...)
}
