package parents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/warm"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// Bounds of the life of a parent. All its children have the same address space layout. An attacker who learns it in
// one child knows it for the others, so a parent must not get old.
const (
	mostForks = 256
	mostAge   = time.Hour
	// idle is the time without a fork after which a parent is dropped.
	idle = 10 * time.Minute
	// endTimeout bounds the end of a parent.
	endTimeout = 20 * time.Second
)

// After mostFailures of a kind, no parent is started for a pause. The pause doubles with each further failure, up
// to six times. Failures are forgotten after a calm period.
const (
	mostFailures = 3
	pause        = time.Minute
	calm         = 10 * time.Minute
)

// parent is a parent in Parents. Parents.mu guards its changes.
type parent struct {
	process
	kind   *kind
	dir    string
	walls  confine.Walls // for its children
	memory *os.File      // the memory of its template, which closes it
	disk   *os.File      // its scratch disk
	holes  []int         // its process's descriptors of the disk
	cards  []int         // its process's descriptors of the tap
	over   chan struct{}

	made  time.Time
	used  time.Time // the time of its start or its last fork
	forks int
	users int // concurrent forks
	idle  *time.Timer
	ended bool // retired: no more forks, and closed when unused
}

// process is a parked *warm.Parent.
type process interface {
	Fork(ctx context.Context, c warm.Child) (hypervisor.Record, warm.Answer, error)
	Done() <-chan struct{}
	Close(ctx context.Context) error
}

// startParent starts a parent of a kind in the background. It then replaces the current one. It is called with mu held.
func (p *Parents) startParent(k *kind) {
	if p.closed || k.making != nil || time.Now().Before(k.paused) {
		return
	}
	if !p.room(k) {
		k.why = errBusy
		return
	}
	k.making = make(chan struct{})
	p.wg.Go(func() {
		made, err := p.maker(p.ctx, k)
		p.mu.Lock()
		defer p.mu.Unlock()
		close(k.making)
		k.making = nil
		if err != nil {
			if !p.closed {
				p.fail(k, err)
			}
			return
		}
		k.why = nil
		p.o.Observer.Count(measure.WarmMade, 1)
		if k.current != nil {
			p.o.Observer.Count(measure.WarmRenewed, 1)
			p.retire(k)
		}
		k.current, made.kind, made.made, made.over = made, k, time.Now(), make(chan struct{})
		made.used = made.made
		made.idle = time.AfterFunc(idle, func() { p.drop(made) })
		p.wg.Go(func() { p.watch(made) })
		if p.closed {
			p.retire(k)
		}
	})
}

// watch notices that a parent has ended by itself.
func (p *Parents) watch(made *parent) {
	select {
	case <-made.over:
	case <-made.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.replace(made, errors.New("a parent ended by itself"))
	}
}

// fail records a failure of a kind. It is called with mu held.
func (p *Parents) fail(k *kind, why error) {
	now := time.Now()
	if now.Sub(k.paused) > calm {
		k.failures = 0
	}
	k.failures++
	p.o.Observer.Count(measure.WarmFailed, 1)
	k.why, k.paused = why, now
	if more := k.failures - mostFailures; more >= 0 {
		k.paused = now.Add(pause << min(more, 6))
	}
	p.o.Logger.Warn("no parent was started", "tenant", k.Tenant, "failures", k.failures, "pause", k.paused.Sub(now), "error", why)
}

// drop ends a parent if it is still current.
func (p *Parents) drop(old *parent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old.kind.current == old {
		p.o.Observer.Count(measure.WarmDropped, 1)
		p.retire(old.kind)
	}
}

// retire ends a kind's parent, if any, as soon as it is unused. It is called with mu held.
func (p *Parents) retire(k *kind) {
	old := k.current
	if old == nil {
		return
	}
	k.current, old.ended = nil, true
	old.idle.Stop()
	p.closeUnused(old)
}

// closeUnused is called with mu held.
func (p *Parents) closeUnused(old *parent) {
	if old.ended && old.users == 0 {
		p.wg.Go(func() { p.closeParent(old) })
	}
}

func (p *Parents) closeParent(old *parent) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	defer close(old.over)
	if err := errors.Join(old.Close(ctx), old.disk.Close(), old.walls.Close(), os.RemoveAll(old.dir)); err != nil {
		p.o.Logger.Warn("end a parent", "error", err)
	}
}

// forked records a fork and its result. A failed parent is replaced. An old parent serves until its replacement is
// ready.
func (p *Parents) forked(from *parent, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from.users--
	from.forks++
	switch {
	case from.ended:
		p.closeUnused(from)
	case err != nil && !errors.Is(err, errDisk):
		p.replace(from, err)
	default:
		from.used = time.Now()
		from.idle.Reset(idle)
		if from.forks >= p.o.MostForks || time.Since(from.made) >= mostAge {
			p.startParent(from.kind)
		}
	}
}

// Failed reports that a fork of the key's parent did not come up although a clone did. It has no effect on a parent
// that was started after forked.
func (p *Parents) Failed(key Key, forked time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.kinds[key]; k != nil && k.current != nil && !k.current.made.After(forked) {
		p.replace(k.current, errors.New("a fork did not come up"))
	}
}

// replace ends a parent and starts another. It is called with mu held.
func (p *Parents) replace(old *parent, why error) {
	if k := old.kind; k.current == old {
		p.fail(k, why)
		p.retire(k)
		p.startParent(k)
	}
}

// reap waits for the exit of a child. A child that died of another signal than those that end VMs may have been
// attacked, to learn about its siblings. Its parent is replaced. The goroutine ends with the child or this process.
func (p *Parents) reap(from *parent, pid int) {
	go func() {
		status, err := p.reaper(pid)
		if err == nil && status.Signaled() && status.Signal() != unix.SIGKILL && status.Signal() != unix.SIGTERM {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.replace(from, fmt.Errorf("a fork died of %s", unix.SignalName(status.Signal())))
		}
	}()
}
