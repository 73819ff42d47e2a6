package parents

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Key identifies the pods that can be forked from one parent.
type Key struct {
	VM hypervisor.VMConfig
	// Tenant is the owner of the pods. Pods of different tenants never share a parent.
	Tenant string
}

// check returns why pods with a key are never forked, with an error that matches ErrNone.
func (k Key) check() error {
	if k.VM.Accel != hypervisor.TCG {
		return fmt.Errorf("%w: the accelerator is %s", ErrNone, k.VM.Accel)
	}
	return nil
}

// kind holds the state of the parents of one key. Parents.mu guards it.
type kind struct {
	Key
	current  *parent
	making   chan struct{} // closed when the current start has ended; nil if there is none
	missed   time.Time     // when a pod found no parent
	wanted   *time.Timer   // starts a parent for the next pods
	failures int           // failed starts and failed parents
	paused   time.Time     // no start until then; otherwise the time of the last failure
	why      error         // why there is no parent
}

// mostParents bounds the kinds that have a parent, or are starting one. An idle parent takes 111 MiB of memory
// (PSS), so that all together stay below 1 GiB.
const mostParents = 8

// busy is how long a parent is protected after its last fork or its start. Otherwise, with too many kinds, each pod
// would replace a parent, which costs more than a clone.
const busy = time.Minute

var errBusy = errors.New("there are as many parents as allowed, and all are in use")

// room drops the parent of another kind if there are too many, namely the least recently used. It returns false if
// that one is busy. It is called with mu held.
func (p *Parents) room(k *kind) bool {
	others, eldest := 0, (*parent)(nil)
	for _, other := range p.kinds {
		if other == k || other.current == nil && other.making == nil {
			continue
		}
		others++
		if old := other.current; old != nil && (eldest == nil || old.used.Before(eldest.used)) {
			eldest = old
		}
	}
	switch {
	case others < mostParents:
		return true
	case eldest == nil || time.Since(eldest.used) < busy:
		return false
	}
	p.o.Observer.Count(measure.WarmDropped, 1)
	p.retire(eldest.kind)
	return true
}

// kind returns the state of a key. When it adds a key, it forgets those that do not matter any more. It is called
// with mu held.
func (p *Parents) kind(key Key) *kind {
	k := p.kinds[key]
	if k == nil {
		maps.DeleteFunc(p.kinds, func(_ Key, old *kind) bool { return old.past() })
		k = &kind{Key: key}
		p.kinds[key] = k
	}
	return k
}

// past reports whether the state of a kind does not matter any more.
func (k *kind) past() bool {
	return k.current == nil && k.making == nil && k.wanted == nil &&
		time.Since(k.missed) >= burst && time.Since(k.paused) > calm
}

// none returns why there is no parent. It is called with mu held.
func (k *kind) none() error {
	if k.why == nil {
		return ErrNone
	}
	return fmt.Errorf("%w: %w", ErrNone, k.why)
}
