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

// Of the life of a parent. All its children share what its address space looks like: who
// has learned that in one of them, knows it for the others. So it does not get old.
const (
	mostForks = 256
	mostAge   = time.Hour
	// idle is after what time without a fork a parent is dropped.
	idle = 10 * time.Minute
	// endTimeout bounds the end of a parent.
	endTimeout = 20 * time.Second
)

// After mostFailures of a kind none is made for a pause, which is doubled with each
// further failure, six times at most. When all has been well for a while they are forgotten.
const (
	mostFailures = 3
	pause        = time.Minute
	calm         = 10 * time.Minute
)

// parent is one, in the hands of Parents. What changes is guarded by Parents.mu.
type parent struct {
	process
	kind   *kind
	dir    string
	walls  confine.Walls // of its children
	memory *os.File      // of the template that it was cloned from, which closes it
	disk   *os.File      // its scratch disk
	holes  []int         // where its process has that
	cards  []int         // where it has its tap
	over   chan struct{}

	made  time.Time
	used  time.Time // when it was made, or forked last
	forks int
	users int // who are forking it
	idle  *time.Timer
	ended bool // it gets no more users, and is closed when it has none
}

// process is a *warm.Parent that is parked.
type process interface {
	Fork(ctx context.Context, c warm.Child) (hypervisor.Record, warm.Answer, error)
	Done() <-chan struct{}
	Close(ctx context.Context) error
}

// begin has a parent of a kind made in the background, which then takes the place of the
// one that there is. It is called with mu held.
func (p *Parents) begin(k *kind) {
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

// watch notices the end of a parent that nobody has ended.
func (p *Parents) watch(made *parent) {
	select {
	case <-made.over:
	case <-made.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.replace(made, errEnded)
	}
}

var errEnded = errors.New("a warm VM ended by itself")

// fail takes note of a kind's failure. It is called with mu held.
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
	p.o.Logger.Warn("no VM is warm", "tenant", k.Tenant, "failures", k.failures, "pause", k.paused.Sub(now), "error", why)
}

// drop ends a parent, if it is in use.
func (p *Parents) drop(old *parent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old.kind.current == old {
		p.o.Observer.Count(measure.WarmDropped, 1)
		p.retire(old.kind)
	}
}

// retire ends a kind's parent, if there is one, when nobody forks it any more. It is
// called with mu held.
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
		p.wg.Go(func() { p.end(old) })
	}
}

func (p *Parents) end(old *parent) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	defer close(old.over)
	if err := errors.Join(old.Close(ctx), old.disk.Close(), old.walls.Close(), os.RemoveAll(old.dir)); err != nil {
		p.o.Logger.Warn("end a warm VM", "error", err)
	}
}

// forked takes note of a fork, or of a failed one. A parent that has failed is believed no
// more. One that is old serves until there is another.
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
			p.begin(from.kind)
		}
	}
}

// Failed tells that a fork of a key's parent, made before that time, was not up where a clone
// was. A parent that was made since is not meant.
func (p *Parents) Failed(key Key, forked time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.kinds[key]; k != nil && k.current != nil && !k.current.made.After(forked) {
		p.replace(k.current, errors.New("a fork was never up"))
	}
}

// replace ends a parent that is not to be forked again. It is called with mu held.
func (p *Parents) replace(old *parent, why error) {
	if k := old.kind; k.current == old {
		p.fail(k, why)
		p.retire(k)
		p.begin(k)
	}
}

// reap takes the exit status of a child. A child that did not end by itself, and was not
// killed as VMs are, may have been probed by who wants to know what its siblings share.
// The goroutine lives as long as the child and this process do.
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
