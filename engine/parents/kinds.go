package parents

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Key is what pods have in common whose VMs are forked of one parent.
type Key struct {
	Machine hypervisor.VMConfig
	// Tenant is who the pods belong to. Pods of different tenants are never forks of one
	// parent.
	Tenant string
}

// check tells why no VM is ever forked for a key, with an error that matches ErrNone.
func (k Key) check() error {
	if k.Machine.Accel != hypervisor.TCG {
		return fmt.Errorf("%w: the accelerator is %s", ErrNone, k.Machine.Accel)
	}
	return nil
}

// kind is all about the parents of one key. It is guarded by Parents.mu.
type kind struct {
	Key
	current  *parent
	making   chan struct{} // closed when the one that is being made is ready, or is not; nil when none is
	missed   time.Time     // when a pod had to do without
	wanted   *time.Timer   // until one is made for the next pods
	failures int           // of making one, and of what was made
	paused   time.Time     // until when none is made; since the last failure if that was no reason
	why      error         // of there being none, until one is made
}

// mostParents is how many kinds have a parent, or one being made, at once. An idle parent
// takes 111 MiB of memory (PSS), so that all together stay below 1 GiB.
const mostParents = 8

// busy is how long after its last fork, or after it was made, a parent is not dropped for
// another kind's. More kinds than there may be parents would else have one made for each
// pod: that costs more than a clone.
const busy = time.Minute

var errBusy = errors.New("as many VMs are warm as may be, and all are in use")

// room drops another kind's parent if k can have none beside it: the one that nobody has
// forked for the longest time. It fails if that one is busy. It is called with mu held.
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

// kind is the one of a key. Others that are as if nobody had ever asked for them are
// forgotten when a new one comes. It is called with mu held.
func (p *Parents) kind(key Key) *kind {
	k := p.kinds[key]
	if k == nil {
		maps.DeleteFunc(p.kinds, func(_ Key, old *kind) bool { return old.past() })
		k = &kind{Key: key}
		p.kinds[key] = k
	}
	return k
}

// past tells that nothing of what is known of a kind matters any more.
func (k *kind) past() bool {
	return k.current == nil && k.making == nil && k.wanted == nil &&
		time.Since(k.missed) >= burst && time.Since(k.paused) > calm
}

// none says why there is none. It is called with mu held.
func (k *kind) none() error {
	if k.why == nil {
		return ErrNone
	}
	return fmt.Errorf("%w: %w", ErrNone, k.why)
}
