package engine

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/containerd/ttrpc"
	"golang.org/x/time/rate"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/blocks"
	"github.com/bulkhead-project/bulkhead/engine/datagrams"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/shares"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/unwind"
	"github.com/bulkhead-project/bulkhead/engine/volumes"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// pod is the engine's state of a pod: its record, its connection to the shim and its containers. All of it can be
// read again from disk and shim.
type pod struct {
	e *Engine
	// vmState has mu, which guards the containers too.
	vmState

	// op is held to change the pod's phase or its set of containers. It is a channel so that a waiting caller can
	// give up.
	op chan struct{}

	volumes   *volumes.Set     // of files
	shares    *shares.Set      // directories of the host
	blocks    *blocks.Set      // and its block devices
	datagrams *datagrams.Relay // of published UDP ports

	// pace limits the rate of work that a guest or a shim can cause.
	pace *rate.Limiter

	// reconciling is held by reconcile.
	reconciling sync.Mutex

	// indoors is held while the process in the client's network namespace creates a socket.
	indoors sync.Mutex

	containers map[string]*container
	making     map[string]*container // containers that the shim may have and clients do not see yet
}

// container is the engine's state of a container. The pod's mu guards the record except ID, Key, Name, ImageID,
// Log, Files, StopSignal and Termination, which never change.
type container struct {
	pod *pod
	store.Stored
	loaded bool // from an earlier engine, and not yet reported by a shim
}

// The engine handles this many messages of a guest or a shim per second, and this many more in a burst.
const (
	guestRate  = 20
	guestBurst = 200
)

func newPod(e *Engine, record *store.Pod) *pod {
	p := &pod{
		e: e, op: make(chan struct{}, 1), pace: rate.NewLimiter(guestRate, guestBurst),
		vmState:    vmState{id: record.ID, store: e.store, over: e.ctx.Done(), record: *record, renewed: make(chan struct{})},
		containers: map[string]*container{}, making: map[string]*container{},
	}
	p.datagrams = datagrams.New(p.openDatagrams, e.log.With("pod", p.id))
	p.shares = shares.New(sharesPod{p}, shares.Host{
		Program: e.o.Share, StateDir: e.store.StateDir(p.id), Rules: e.Places(), Volumes: e.named,
		Logger: e.log.With("pod", p.id),
	})
	p.blocks = blocks.New(blocksPod{p}, e.named, e.Places())
	p.volumes = volumes.New(volumePod{p}, volumes.Host{Paths: e.paths, Logger: e.log.With("pod", p.id)})
	return p
}

// volumePod implements volumes.Pod.
type volumePod struct{ *pod }

// Up implements volumes.Pod.
func (p volumePod) Up() (up bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready() && !p.gone, p.renewed
}

// Live implements volumes.Pod.
func (p volumePod) Live(ctx context.Context) (*link.Conn, error) { return p.live(ctx) }

// Watch implements volumes.Pod.
func (p volumePod) Watch(dir string) (changed <-chan struct{}, stop func(), err error) {
	return p.e.watches.Add(p.e.ctx, dir)
}

// Spawn implements volumes.Pod.
func (p volumePod) Spawn(f func(context.Context)) error {
	if !p.e.spawn(func() { f(p.e.ctx) }) {
		return errClosed
	}
	return nil
}

// sharesPod implements shares.Pod.
type sharesPod struct{ *pod }

// Record implements shares.Pod.
func (p sharesPod) Record() store.Pod { return p.snapshot() }

// Up implements shares.Pod.
func (p sharesPod) Up() bool {
	up, _ := volumePod(p).Up()
	return up && !p.ended()
}

// Serving implements shares.Pod. It fails if the pod ends: the server may then be ended already, or have no record.
func (p sharesPod) Serving(process procid.ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.record.Phase != store.Ready || p.record.Exit != "" || p.ending || p.gone {
		return p.notReady()
	}
	return p.setStateLocked(func(r *store.Pod) { r.ShareServer = process })
}

// Journal implements shares.Pod.
func (p sharesPod) Journal(ctx context.Context) error {
	_, err := p.e.store.Journal(p.id).Before(ctx, unwind.Shares, struct{}{}, atomicfile.Volatile)
	return err
}

// Spawn implements shares.Pod.
func (p sharesPod) Spawn(f func(context.Context)) error { return volumePod(p).Spawn(f) }

// blocksPod implements blocks.Pod.
type blocksPod struct{ *pod }

// Blocks implements blocks.Pod.
func (p blocksPod) Blocks(but string) (all []store.Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ctr := range p.containers {
		if ctr.ID != but {
			all = append(all, ctr.Blocks...)
		}
	}
	return all
}

// Holder implements blocks.Pod.
func (p blocksPod) Holder(path string) string {
	holder, _ := p.e.holder(path, p.pod)
	if holder == nil {
		return ""
	}
	return cmp.Or(holder.snapshot().Title, shortid.Of(holder.id))
}

// Release implements blocks.Pod.
func (p blocksPod) Release(ctx context.Context) error {
	c, err := p.live(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	_, err = c.Ext.ReleaseVolumes(ctx, &shimv1.ReleaseVolumesRequest{})
	return err
}

// acquire takes op, or returns when ctx ends.
func (p *pod) acquire(ctx context.Context) error {
	select {
	case p.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return failure.Wrap(ctx.Err(), "wait for another operation on pod %s", shortid.Of(p.id))
	}
}

func (p *pod) done() { <-p.op }

// stopped waits for a running stop or removal, and reports whether the pod has no VM any more.
func (p *pod) stopped(ctx context.Context) bool {
	if p.acquire(ctx) != nil {
		return false
	}
	defer p.done()
	return p.snapshot().Phase != store.Ready || p.removed()
}

// lost reports whether a call failed because its shim died or was released. The caller cannot know whether the call
// took effect.
func lost(err error) bool {
	return errors.Is(err, ttrpc.ErrClosed) || errors.Is(err, shim.ErrNotRunning)
}

// adoptOptions returns the options for a new shim: the files that it cannot open itself, and its place in the
// network. The caller must call closeFiles after the start of the shim.
func (p *pod) adoptOptions(ctx context.Context) (o shim.Options, closeFiles func(), err error) {
	r := p.snapshot()
	o = p.e.shimOptions(&r)
	if o.Spawn, err = p.e.place(ctx, &r); err != nil {
		return o, nil, failure.Wrap(err, "network")
	}
	p.e.groups.Remake(&r)
	o.Spawn = group.In(&r, o.Spawn)
	o.Logs = map[string]*os.File{}
	scratch, err := p.e.disks.Open(p.id)
	if err == nil {
		o.Scratch = scratch
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, set := range []map[string]*container{p.containers, p.making} {
		for id, c := range set {
			if c.Exit != nil || c.Log == "" || o.Logs[id] != nil {
				continue
			}
			if f, err := p.e.paths.OpenLog(c.Log); err == nil {
				o.Logs[id] = f
			} else {
				p.e.log.Warn("open a container's log again", "container", id, "error", err)
			}
		}
	}
	return o, func() {
		if o.Scratch != nil {
			o.Scratch.Close()
		}
		for _, f := range o.Logs {
			f.Close()
		}
	}, nil
}

// place returns how to start processes in the pod's network.
func (e *Engine) place(ctx context.Context, r *store.Pod) (func(*exec.Cmd) error, error) {
	p, err := e.kinds.Networks.Of(networks.KindOf(r.VM))
	if err != nil {
		return nil, err
	}
	a, err := p.Attach(ctx, network.Request{ID: r.ID})
	return a.Start, err
}

// hasState reports whether a shim could take over the pod. It needs the VM's configuration and the sandbox's state;
// the latter is removed first at the end.
func hasState(dir string) bool {
	for _, name := range []string{layout.VMConfig, layout.Sandbox} {
		if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	return true
}

func (e *Engine) shimOptions(r *store.Pod) shim.Options {
	return shim.Options{
		ID: r.ID, Instance: e.o.Instance, StateDir: e.store.StateDir(r.ID), DataDir: e.store.DataDir(r.ID),
		VM: r.VM, Owner: r.Owner, Path: e.o.Shim,
	}
}
