// Package parents keeps parents: paused VMs that have never run a pod. The VMs of pods are forked from them
// (package hypervisor/warm). There is one for each kind of VM and tenant in recent use, at most mostParents. It
// starts in the background as a clone that rehearses a pod, and is tested by a fork. A parent is replaced when it
// is old, after many forks, or after a suspicious death of a child. It is dropped when it is idle.
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
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/engine/vms"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/hypervisor/warm"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// ErrNone is matched if there is no parent to fork. The pod then gets a clone.
var ErrNone = errors.New("no parent")

// Options configure parents. All but MostForks, Observer and Logger are required.
type Options struct {
	// Dir is the directory for the parents' sockets. It is created with the first parent and removed by Close. Its
	// parent directory must exist.
	Dir string
	// Library is the path of bulkhead-warm.so.
	Library string
	// Share is the path of bulkhead-share.
	Share  string
	Driver qemu.Driver
	// Template returns the template of a parent.
	Template func(ctx context.Context, m hypervisor.VMConfig) (*vms.Template, error)
	// Network returns the network configuration for the rehearsal of a VM.
	Network func(ctx context.Context, m hypervisor.VMConfig) (*agentv1.Network, error)
	// Scratch creates the disk for the rehearsal.
	Scratch func(ctx context.Context, path string) error
	// MostForks is the number of forks after which a parent is replaced; 0 means 256.
	MostForks int
	// Observer receives events of parents; it may be nil.
	Observer measure.Observer
	Logger   *slog.Logger
}

// Parents manages the parents of one engine. Its methods are safe for concurrent use.
type Parents struct {
	o      Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // starts, forks, watches and ends
	// maker is newParent and reaper is procid.Reap, except in tests.
	maker  func(ctx context.Context, k *kind) (*parent, error)
	reaper func(pid int) (unix.WaitStatus, error)

	mu     sync.Mutex
	closed bool
	kinds  map[Key]*kind
}

// New returns Parents without any parent. Dir must not exist.
func New(o Options) *Parents {
	if o.MostForks == 0 {
		o.MostForks = mostForks
	}
	if o.Observer == nil {
		o.Observer = measure.Discard{}
	}
	p := &Parents{o: o, kinds: map[Key]*kind{}, reaper: procid.Reap}
	p.maker = p.newParent
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Child describes a pod's VM.
type Child struct {
	ID     string      // of the pod
	Dir    string      // for its sockets; its owner owns it
	Owner  *shim.Owner // nil means the engine's own user
	Groups []*os.File  // as in warm.Confinement
	Place  network.Place
	Tap    *os.File // its network card; may be nil; the caller closes it
	// Memory is the memory of the pod's template. A parent with another memory is replaced.
	Memory *os.File
	// Disk creates the pod's scratch disk as a copy of the parent's, which its guest has mounted. Fork closes it.
	Disk func(from *os.File) (*os.File, error)
}

// burst is the time within which a second pod without a parent waits for one, instead of doing the same work.
const burst = 3 * time.Second

// mostWait bounds a pod's wait for a parent.
const mostWait = 20 * time.Second

// Fork forks a pod's VM, which stays paused. It waits for a parent that is being started. Once a parent has been
// asked, the end of ctx has no effect, because it would affect all forks. The error matches ErrNone if there is no
// parent, or warm.ErrFork if the fork failed; a clone may then succeed.
func (p *Parents) Fork(ctx context.Context, key Key, c Child) (hypervisor.Record, error) {
	if !p.startWork() {
		return hypervisor.Record{}, fmt.Errorf("%w: the engine is closed", ErrNone)
	}
	defer p.wg.Done()
	from, err := p.acquire(ctx, key, c.Memory)
	if err != nil {
		return hypervisor.Record{}, err
	}
	child := warm.Child{Name: layout.VMName(c.ID), Dir: c.Dir, Confinement: warm.Confinement{
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

// startWork counts a caller that Close waits for, until it calls wg.Done. It returns false after Close.
func (p *Parents) startWork() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

// acquire returns a key's parent and counts the caller as its user.
func (p *Parents) acquire(ctx context.Context, key Key, memory *os.File) (*parent, error) {
	if err := key.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, mostWait)
	defer cancel()
	for waited := false; ; waited = true {
		p.mu.Lock()
		k := p.kind(key)
		if k.current != nil && k.current.memory != memory {
			p.retire(k) // its template was removed or condemned
			p.startParent(k)
		}
		if k.current != nil {
			defer p.mu.Unlock()
			k.current.users++
			return k.current, nil
		}
		now := time.Now()
		if k.making == nil && !waited && now.Sub(k.missed) < burst {
			p.startParent(k)
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

// quiet is the delay after a pod's start before a parent for the next ones uses the host's CPUs.
const quiet = time.Second

// Want starts a parent for a key after a delay, if there is none then.
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
			p.startParent(k)
		}
	})
}

// Ready starts a parent for a key if there is none, and returns when pods can be forked from it.
func (p *Parents) Ready(ctx context.Context, key Key) error {
	if err := key.check(); err != nil {
		return err
	}
	p.mu.Lock()
	k := p.kind(key)
	if k.current == nil {
		p.startParent(k)
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

// Close ends the parents and waits for that. Their children keep running.
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
