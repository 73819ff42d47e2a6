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

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/blocks"
	"github.com/bulkhead-project/bulkhead/engine/datagrams"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/shares"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/volumes"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// pod is a pod as the engine holds it: its record, its connection to the shim
// and its containers, all of which can be read again from disk and shim.
type pod struct {
	e  *Engine
	id string

	// op is held by who changes the pod's phase or its set of containers. It
	// is a channel so that who waits for it can give up.
	op chan struct{}

	volumes   *volumes.Set     // of files
	shares    *shares.Set      // directories of the host
	blocks    *blocks.Set      // and its block devices
	datagrams *datagrams.Relay // of published UDP ports

	// pace holds back what a guest or a shim can have the engine do without an end.
	pace *rate.Limiter

	// reconcile is held while the shim's word is taken over.
	reconciling sync.Mutex

	mu         sync.Mutex
	record     store.Pod
	conn       *link.Conn    // nil when there is no shim
	renewed    chan struct{} // closed, and another made, when conn, stuck or record change
	stuck      error         // why the shim could not be replaced when last tried
	paused     bool
	pauses     uint64 // how often it was
	containers map[string]*container
	making     map[string]*container // which the shim may have, and nobody sees yet
	ending     bool                  // its machine has begun to be ended: another shim is of no use
	gone       bool                  // removed: for who found it before
}

// container is a container as the engine holds it. Its record is guarded by the
// pod's mu, but for what never changes: ID, Key, Name, ImageID, Log, Files,
// StopSignal and Termination.
type container struct {
	pod *pod
	store.Stored
	loaded bool // an earlier engine's, and no shim has told of it yet
}

// What a guest or a shim tells the engine is taken over so many times a second, and some more at once.
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

// volumePod is a pod as its volumes see it.
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

// sharesPod is a pod as the directories of the host see it that it has.
type sharesPod struct{ *pod }

// Record implements shares.Pod.
func (p sharesPod) Record() store.Pod { return p.snapshot() }

// Up implements shares.Pod.
func (p sharesPod) Up() bool {
	up, _ := volumePod(p).Up()
	return up && !p.ended()
}

// Serving implements shares.Pod. A pod that ends has begun to end its server, or has no record any more.
func (p sharesPod) Serving(process procid.ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.record.Phase != store.Ready || p.record.Exit != "" || p.ending || p.gone {
		return p.notReady()
	}
	return p.assumeLocked(func(r *store.Pod) { r.ShareServer = process })
}

// Journal implements shares.Pod.
func (p sharesPod) Journal(ctx context.Context) error {
	_, err := p.e.store.Journal(p.id).Before(ctx, undoShares, struct{}{}, atomicfile.Volatile)
	return err
}

// Spawn implements shares.Pod.
func (p sharesPod) Spawn(f func(context.Context)) error { return volumePod(p).Spawn(f) }

// blocksPod is a pod as the block devices of the host see it that it has.
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
	_, err = c.Task.Update(ctx, &taskv3.UpdateTaskRequest{Annotations: map[string]string{layout.ReleaseAnnotation: "true"}})
	return err
}

// acquire takes op, or gives up with ctx.
func (p *pod) acquire(ctx context.Context) error {
	select {
	case p.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return failure.Wrap(ctx.Err(), "wait for another operation on pod %s", shortid.Of(p.id))
	}
}

func (p *pod) done() { <-p.op }

// snapshot is the record as it is now.
func (p *pod) snapshot() store.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record
}

// ended reports whether the pod's machine has ended, or begun to be ended:
// what is left is to stop the pod.
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

// assume is update for what has happened whether or not it can be stored: only
// the storing fails.
func (p *pod) assume(change func(*store.Pod)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.assumeLocked(change)
}

// assumeLocked is called with mu held.
func (p *pod) assumeLocked(change func(*store.Pod)) error {
	change(&p.record)
	p.wake()
	return p.e.store.PutPod(&p.record)
}

// wake tells those that wait for a change of conn or record; the caller holds mu.
func (p *pod) wake() {
	close(p.renewed)
	p.renewed = make(chan struct{})
}

// shim returns the connection to the pod's shim, or an error for a pod that
// has none.
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
				why = "its shim has died, and no other can be started: " + p.stuck.Error()
			}
		}
	}
	return failure.New(codes.FailedPrecondition, "pod %s is not ready: %s", shortid.Of(p.id), why)
}

// live returns the connection to the pod's shim. While a shim that has died is
// being replaced, it waits for the next one.
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

// lost says of a failed call that its shim has died, or been let go of, and
// nobody knows what it did before.
func lost(err error) bool {
	return errors.Is(err, ttrpc.ErrClosed) || errors.Is(err, shim.ErrNotRunning)
}

// adoptOptions are what another shim is started with: the files that it cannot
// open itself, and its place in the network. The caller calls closeFiles when it
// is.
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

// place is how processes are started in the network that a pod has already.
func (e *Engine) place(ctx context.Context, r *store.Pod) (func(*exec.Cmd) error, error) {
	p, err := e.networks.Of(networks.KindOf(r.Machine))
	if err != nil {
		return nil, err
	}
	a, err := p.Attach(ctx, network.Request{ID: r.ID})
	return a.Start, err
}

// hasState reports whether a shim could take the pod over: what the machine is
// made from and how far the sandbox is. The latter goes first when it ends.
func (e *Engine) hasState(id string) bool {
	for _, name := range []string{layout.Machine, layout.Sandbox} {
		if _, err := os.Lstat(filepath.Join(e.store.StateDir(id), name)); errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	return true
}

func (e *Engine) shimOptions(r *store.Pod) shim.Options {
	return shim.Options{
		ID: r.ID, Instance: e.o.Instance, StateDir: e.store.StateDir(r.ID), DataDir: e.store.DataDir(r.ID),
		Machine: r.Machine, Owner: r.Owner, Path: e.o.Shim,
	}
}

// release lets go of the pod, which runs on.
func (p *pod) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
}

// find returns the pod that id, or an unambiguous prefix of one, names.
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
			return nil, failure.Invalid("pod sandbox %s: more than one id begins so", id)
		}
		found = p
	}
	if found == nil {
		return nil, failure.New(codes.NotFound, "pod sandbox %.80s: not found", id)
	}
	return found, nil
}

// findContainer returns the container that id, or an unambiguous prefix, names.
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
					return nil, failure.Invalid("container %s: more than one id begins so", id)
				}
				found = c
			}
		}
		p.mu.Unlock()
	}
	if found == nil {
		return nil, failure.New(codes.NotFound, "container %.80s: not found", id)
	}
	return found, nil
}

// all returns the pods that may be seen.
func (e *Engine) all() []*pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	pods := make([]*pod, 0, len(e.pods))
	for _, p := range e.pods {
		pods = append(pods, p)
	}
	return pods
}
