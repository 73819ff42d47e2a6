package engine

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
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
	e  *Engine
	id string

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

	mu         sync.Mutex
	record     store.Pod
	conn       *link.Conn    // nil when there is no shim
	renewed    chan struct{} // closed and replaced when conn, stuck or record change
	stuck      error         // the last error of starting a new shim
	paused     bool
	pauses     uint64 // how often the VM was paused
	containers map[string]*container
	making     map[string]*container // containers that the shim may have and clients do not see yet
	ending     bool                  // the VM is being ended: it needs no new shim
	gone       bool                  // removed: for callers that found it before
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
		e: e, id: record.ID, record: *record, op: make(chan struct{}, 1),
		pace:       rate.NewLimiter(guestRate, guestBurst),
		containers: map[string]*container{}, making: map[string]*container{}, renewed: make(chan struct{}),
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

// removed reports whether the pod was removed.
func (p *pod) removed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// snapshot returns a copy of the record.
func (p *pod) snapshot() store.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record
}

// ended reports whether the pod's VM has ended or is being ended. The pod then only has to be stopped.
func (p *pod) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record.Exit != "" || p.ending
}

// update changes the record and stores it.
func (p *pod) update(change func(*store.Pod)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.record
	change(&next)
	if err := p.e.store.PutPod(&next); err != nil {
		return err
	}
	p.record = next
	p.wake()
	return nil
}

// setState is like update, but changes the record even if it cannot be stored. The error concerns the storing only.
func (p *pod) setState(change func(*store.Pod)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.setStateLocked(change)
}

// setStateLocked is called with mu held.
func (p *pod) setStateLocked(change func(*store.Pod)) error {
	change(&p.record)
	p.wake()
	return p.e.store.PutPod(&p.record)
}

// wake notifies the goroutines that wait for a change of conn or record; the caller holds mu.
func (p *pod) wake() {
	close(p.renewed)
	p.renewed = make(chan struct{})
}

// shim returns the connection to the pod's shim. It returns an error if there is none.
func (p *pod) shim() (*link.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return nil, p.notReady()
	}
	return p.conn, nil
}

// notReady is called with mu held.
func (p *pod) notReady() error {
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
func (p *pod) live(ctx context.Context) (*link.Conn, error) {
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
		case <-p.e.ctx.Done():
			return nil, errClosed
		case <-ctx.Done():
			return nil, failure.Wrap(ctx.Err(), "wait for another shim of pod %s", shortid.Of(p.id))
		}
	}
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
func (e *Engine) hasState(id string) bool {
	for _, name := range []string{layout.VMConfig, layout.Sandbox} {
		if _, err := os.Lstat(filepath.Join(e.store.StateDir(id), name)); errors.Is(err, os.ErrNotExist) {
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

// release closes the connection to the shim. The pod keeps running.
func (p *pod) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
}

// find returns the pod by its id or a unique prefix of it.
func (e *Engine) find(id string) (*pod, error) {
	if id == "" {
		return nil, failure.Invalid("no pod sandbox id is given")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pods[id]; p != nil {
		return p, nil
	}
	var found *pod
	for full, p := range e.pods {
		if !strings.HasPrefix(full, id) {
			continue
		}
		if found != nil {
			return nil, failure.Invalid("pod sandbox %s: more than one id begins with this", id)
		}
		found = p
	}
	if found == nil {
		return nil, failure.New(errdefs.ErrNotFound, "pod sandbox %.80s: not found", id)
	}
	return found, nil
}

// findContainer returns the container by its id or a unique prefix of it.
func (e *Engine) findContainer(id string) (*container, error) {
	if id == "" {
		return nil, failure.Invalid("no container id is given")
	}
	var found *container
	for _, p := range e.all() {
		p.mu.Lock()
		for full, c := range p.containers {
			if full == id {
				p.mu.Unlock()
				return c, nil
			}
			if strings.HasPrefix(full, id) {
				if found != nil {
					p.mu.Unlock()
					return nil, failure.Invalid("container %s: more than one id begins with this", id)
				}
				found = c
			}
		}
		p.mu.Unlock()
	}
	if found == nil {
		return nil, failure.New(errdefs.ErrNotFound, "container %.80s: not found", id)
	}
	return found, nil
}

// all returns the visible pods.
func (e *Engine) all() []*pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	pods := make([]*pod, 0, len(e.pods))
	for _, p := range e.pods {
		pods = append(pods, p)
	}
	return pods
}
