// Package parents keeps warm parents: stopped VMs in which no pod has ever run, and of
// which pods' VMs are forked (package hypervisor/warm). There is one for each kind of
// VM and each tenant that was wanted of late, and at most mostParents. It is made in the
// background, of a clone that rehearses a pod, and proven by a fork; another takes its
// place when it is old, when many were forked of it, and when one of its children died as
// no child should. One that nobody has forked for a while is dropped.
package parents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/engine/machines"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/hypervisor/warm"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// ErrNone is matched when there is no parent to fork: the pod gets a clone.
var ErrNone = errors.New("no warm VM")

// Options say what parents are made with. All but MostForks, Observer and Logger are required.
type Options struct {
	// Dir is a directory for the parents' sockets, made with the first and removed by
	// Close. Its own directory is there by then.
	Dir string
	// Library is the path of bulkhead-warm.so.
	Library string
	Driver  qemu.Driver
	// Template gives what parents are cloned from.
	Template func(ctx context.Context, m hypervisor.VMConfig) (*machines.Template, error)
	// Network is what the guest of a machine sets up when it rehearses.
	Network func(ctx context.Context, m hypervisor.VMConfig) (*agentv1.Network, error)
	// Scratch makes the disk that a guest rehearses with.
	Scratch func(ctx context.Context, path string) error
	// MostForks is how many forks of a parent have it renewed; 0 is 256.
	MostForks int
	// Observer is told what becomes of parents; nil is nobody.
	Observer measure.Observer
	Logger   *slog.Logger
}

// Parents are those of one engine. Its methods may be called at once.
type Parents struct {
	o      Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // what is made, forked, watched and ended
	// maker is make, reaper procid.Reap, but for tests.
	maker  func(ctx context.Context, k *kind) (*parent, error)
	reaper func(pid int) (unix.WaitStatus, error)

	mu     sync.Mutex
	closed bool
	kinds  map[Key]*kind
}

// New makes no parent yet. Dir must not be there.
func New(o Options) *Parents {
	if o.MostForks == 0 {
		o.MostForks = mostForks
	}
	if o.Observer == nil {
		o.Observer = measure.Nobody{}
	}
	p := &Parents{o: o, kinds: map[Key]*kind{}, reaper: procid.Reap}
	p.maker = p.make
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Child is what a pod's VM is to be.
type Child struct {
	ID     string      // the pod's
	Dir    string      // for its sockets, its owner's
	Owner  *shim.Owner // nil is the engine's own user
	Groups []*os.File  // as warm.Confinement has them
	Place  network.Place
	Tap    *os.File // its card, which the caller closes, nil where it needs none
	// Memory is that of the template that the pod would be cloned from. A parent of another
	// one is replaced.
	Memory *os.File
	// Disk makes the pod's scratch disk as a copy of the parent's, which its guest has
	// mounted. Fork closes it.
	Disk func(from *os.File) (*os.File, error)
}

// burst is within which time a second pod that finds no parent waits for one, instead of
// doing what the parent has to do as well.
const burst = 3 * time.Second

// mostWait is how long a pod waits for a parent.
const mostWait = 20 * time.Second

// Fork makes a pod's VM, which stands still. It waits for a parent that is being made.
// Once a parent has been asked, the end of ctx ends nothing: it would end that for all.
// Where there is none, and where the fork fails, the error matches ErrNone or
// warm.ErrFork, and the pod is as well off with a clone.
func (p *Parents) Fork(ctx context.Context, key Key, c Child) (hypervisor.Record, error) {
	if !p.enter() {
		return hypervisor.Record{}, errClosed
	}
	defer p.wg.Done()
	from, err := p.take(ctx, key, c.Memory)
	if err != nil {
		return hypervisor.Record{}, err
	}
	child := warm.Child{Name: layout.MachineName(c.ID), Dir: c.Dir, Confinement: warm.Confinement{
		FileSize: hypervisor.SlotSize, Groups: c.Groups,
		UserNS: c.Place.User, NetNS: c.Place.Net, Alone: c.Place.Alone,
		Landlock: from.walls.Ruleset, Filter: from.walls.Filter,
	}}
	if c.Owner != nil {
		child.Owner = &warm.Owner{UID: c.Owner.UID, GID: c.Owner.GID}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forkTimeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	r, err := from.fork(ctx, child, c.Disk, c.Tap)
	p.forked(from, err)
	if err != nil {
		p.o.Logger.Warn("fork a pod's VM", "pod", c.ID, "error", err)
		return r, err
	}
	p.reap(from, r.Process.PID)
	return r, nil
}

// forkTimeout bounds a fork, which takes some milliseconds.
const forkTimeout = 15 * time.Second

var errClosed = fmt.Errorf("%w: the engine is closed", ErrNone)

// enter has Close wait for the caller, until it calls wg.Done. It fails after Close.
func (p *Parents) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

// take counts the caller among those who fork a key's parent.
func (p *Parents) take(ctx context.Context, key Key, memory *os.File) (*parent, error) {
	if err := key.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, mostWait)
	defer cancel()
	for waited := false; ; waited = true {
		p.mu.Lock()
		k := p.kind(key)
		if k.current != nil && k.current.memory != memory {
			p.retire(k) // its template was removed, or condemned
			p.begin(k)
		}
		if k.current != nil {
			defer p.mu.Unlock()
			k.current.users++
			return k.current, nil
		}
		now := time.Now()
		if k.making == nil && !waited && now.Sub(k.missed) < burst {
			p.begin(k)
		}
		k.missed = now
		making, none := k.making, k.none()
		p.mu.Unlock()
		if making == nil || waited {
			return nil, none
		}
		select {
		case <-making:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrNone, ctx.Err())
		}
	}
}

// quiet is how long a pod that was just started is left the host's processors, before a
// parent is made for the next ones.
const quiet = time.Second

// Want has a parent for a key made in a while, if there is none then.
func (p *Parents) Want(key Key) {
	if key.check() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kind(key)
	if k.current != nil || k.making != nil || k.wanted != nil || p.closed {
		return
	}
	k.wanted = time.AfterFunc(quiet, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if k.wanted = nil; k.current == nil {
			p.begin(k)
		}
	})
}

// Ready has a parent for a key made at once, if there is none, and returns when pods are
// forked of it.
func (p *Parents) Ready(ctx context.Context, key Key) error {
	if err := key.check(); err != nil {
		return err
	}
	p.mu.Lock()
	k := p.kind(key)
	if k.current == nil {
		p.begin(k)
	}
	making := k.making
	p.mu.Unlock()
	if making != nil {
		select {
		case <-making:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.current == nil {
		return k.none()
	}
	return nil
}

// Close ends the parents and returns when nothing of them is left; their children live
// on.
func (p *Parents) Close() error {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	for _, k := range p.kinds {
		p.retire(k)
		if k.wanted != nil {
			k.wanted.Stop()
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
	return os.RemoveAll(p.o.Dir)
}
