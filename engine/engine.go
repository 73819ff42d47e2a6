// Package engine makes, adopts, reaps and removes the pod machines of this host:
// each pod is a VM of its own, with one shim. It speaks no client's language. A
// door asks for a pod and its containers with the requests of this package, and
// gives what it wants to find again as bytes that the engine keeps and never reads.
//
// The engine keeps nothing in memory that it cannot rebuild. What it owns lies in
// three places:
//
//	$DATA/names/<instance>/     one file a reserved name, which says whose id it is;
//	                            first made, last removed
//	$DATA/sandboxes/<id>/       pod.json, containers/<cid>/{container,exit}.json,
//	                            and vm/, which belongs to the shim
//	$STATE/<instance>/<id>/     the shim's sockets and the containers' bundles
//
// A pod's life: reserve → store (phase "starting") → network and shim →
// CreateSandbox, StartSandbox → publish → phase "ready", which is when others see
// it. A crash in between leaves a name and a phase from which Reap undoes whatever
// was done. A stopped pod has no process; its containers' ends are on disk.
//
// Errors carry a gRPC status code (package failure).
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/machines"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/volumes"
	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/dirwatch"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/hostpath"
	"github.com/bulkhead-project/bulkhead/internal/hub"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/internal/timeline"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/network/cni"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
	"github.com/bulkhead-project/bulkhead/share"
	"github.com/bulkhead-project/bulkhead/shim/confine"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// Options say what an engine works with. Roots and Instance are required.
type Options struct {
	Roots    dirs.Roots
	Instance string // "run", "cri", "node": lower-case letters, digits and '-'
	// HostPaths are the directories below which the paths lie that clients name:
	// of log directories and of the sources of mounts. They exist. A path
	// elsewhere is refused, and no link leads out of them.
	HostPaths []string
	// LogBytes is what a container's log file may hold until ReopenLog, 0 is no limit.
	// Until then the container whose log is full waits.
	LogBytes int64
	// Building, if set, is called when the template that a pod, named by its
	// Identity's UID, is to be cloned from has to be built first. It must not
	// block.
	Building func(podUID string)
	// Observer is told what the engine does; nil is nobody.
	Observer measure.Observer
	// Logger is slog.Default() if nil.
	Logger *slog.Logger

	// Shim and Share are the paths of bulkhead-shim and bulkhead-share; empty finds them
	// beside the executable.
	Shim, Share string
	// Guest is what VMs boot; its zero value is the installed one.
	Guest guest.Bundle
	// Users is the directory in which pods' users are leased; empty is the one that
	// root's engines of this host share.
	Users string
	// Images are the instance's; nil opens them in Roots.
	Images *image.Store
	// Network gives the provider of a kind, called once a kind; nil is
	// bulkhead's own networks.
	Network func(kind network.Kind) (network.Provider, error)
	// Shims and Machines are real processes if nil, and Groups the host's.
	Shims    link.Shims
	Machines machines.Source
	Groups   *group.Groups
	// Parents are what VMs are forked of; nil are those of Machines, if that is nil too.
	Parents Parents
	// Warm is the path of bulkhead-warm.so; empty finds it beside the executable.
	Warm string
	// CNI says where a node's network plugins are; with it, pods that ask for no network get
	// theirs. Of what it leaves out, Dir and Logger are the engine's.
	CNI *cni.Options
	// NoForks has every VM be a clone.
	NoForks bool
	// Tenant tells who a pod belongs to: VMs of different tenants' pods are never forks of
	// one warm VM. Nil is one tenant for all.
	Tenant func(Identity) string
	// ForksPerParent is how many VMs are forked of one warm VM before there is another; 0
	// is what package parents thinks best.
	ForksPerParent int
	// DefaultMemory and DefaultVCPUs are the size of a VM, in MiB, whose pod states no limit; 0 is what fits the
	// host (sizing.DefaultsFor).
	DefaultMemory, DefaultVCPUs int
	// ReapEvery is after what time what could not be undone is tried again; 0 is a minute.
	ReapEvery time.Duration

	networks *networks.Networks // of Network
}

// Engine makes the pods of an instance. Its methods may be called at once.
type Engine struct {
	o        Options
	log      *slog.Logger
	store    *store.Store
	shims    link.Shims
	machines machines.Source
	parents  Parents
	images   *image.Store
	paths    hostpath.Dirs
	named    *named.Store
	disks    disks.Disks
	host     sizing.Host
	defaults sizing.Defaults
	groups   *group.Groups
	networks *networks.Networks
	missing  error        // of the walls around VMs on this kernel
	unlock   func() error // what lock has locked
	found    Reaped       // by Open

	// ctx ends with Close; wg counts every goroutine. Both belong to spawn.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	flights singleflight.Group
	events  hub.Hub[Event]
	watches dirwatch.Watches
	turns   chan struct{} // see admit

	mu      sync.Mutex
	closed  bool
	pods    map[string]*pod // those that may be seen, by id
	working map[string]bool // ids that are being made
}

var errClosed = failure.New(codes.Unavailable, "the engine is closed")

// lockWait bounds the wait for an engine of the same instance to end.
const lockWait = 5 * time.Second

// Open makes the engine of an instance, with all that it works with, and adopts
// the pods that an earlier one left. There is one engine an instance at a time:
// while another runs, Open fails with an error that matches flock.ErrLocked. What
// could not be adopted or undone is logged and left for Reap.
func Open(ctx context.Context, o Options) (*Engine, error) {
	e, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start the engine of instance %s: %w", o.Instance, err)
	}
	return e, nil
}

func open(ctx context.Context, o Options) (*Engine, error) {
	st, err := store.Open(o.Roots, o.Instance)
	if err != nil {
		return nil, err
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, o.Roots, st)
	if err != nil {
		return nil, errors.Join(err, o.Machines.Close())
	}
	// An engine that was killed has left its warm VMs' sockets: they ended with it.
	if err := os.RemoveAll(o.warmDir()); err != nil {
		return nil, errors.Join(err, unlock(), o.Machines.Close())
	}
	e := &Engine{
		o: o, log: o.Logger, store: st, shims: o.Shims, machines: o.Machines, parents: o.Parents, images: o.Images, paths: o.HostPaths,
		disks: disks.Disks{Store: st, Maker: scratch.Maker{Templates: o.Roots.Templates()}}, host: hostOf(), groups: o.Groups,
		named: named.In(o.Roots.Data), networks: o.networks, missing: confine.Landlock(), unlock: unlock,
		turns: make(chan struct{}, startsPerCPU*runtime.NumCPU()),
		pods:  map[string]*pod{}, working: map[string]bool{},
	}
	e.defaults = sizing.DefaultsFor(e.host, o.DefaultMemory, o.DefaultVCPUs)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.watches.Spawn, e.watches.Match = e.spawn, volumes.Replaced
	if e.found, err = e.Reap(ctx); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	e.spawn(e.reapAgain)
	return e, nil
}

// lock makes this process the one engine of the instance, in its state directory and for
// its data.
func lock(ctx context.Context, r dirs.Roots, st *store.Store) (unlock func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	state, err := flock.Acquire(ctx, st.LockPath())
	if err != nil {
		return nil, err
	}
	data, err := r.Claim(ctx, st.Instance())
	if err != nil {
		return nil, errors.Join(err, state.Unlock())
	}
	return func() error { return errors.Join(data.Unlock(), state.Unlock()) }, nil
}

// complete opens what the options leave out.
func (o *Options) complete() (err error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Observer == nil {
		o.Observer = measure.Nobody{}
	}
	if o.Shim == "" {
		if o.Shim, err = dirs.Sibling("bulkhead-shim"); err != nil {
			return err
		}
	}
	if o.Share == "" {
		if o.Share, err = dirs.Sibling(share.Program); err != nil {
			return err
		}
	}
	if o.Shims == nil {
		o.Shims = link.Processes{}
	}
	if o.Guest.Dir == "" {
		dir, err := dirs.Guest()
		if err != nil {
			return err
		}
		if o.Guest, err = guest.Load(dir); err != nil {
			return err
		}
	}
	if o.Images == nil {
		if o.Images, err = image.Open(o.Roots, o.Instance); err != nil {
			return err
		}
	}
	if o.Network == nil {
		o.Network = networks.Own(o.Roots.Instance(o.Instance), o.plugins())
	}
	o.networks = networks.New(o.Network)
	if err := o.completeUsers(); err != nil {
		return err
	}
	if o.Groups == nil {
		o.Groups = group.Find(o.Roots, o.Instance, o.Logger)
	}
	o.Images.ConvertIn(o.Groups.Converters)
	if o.Machines == nil {
		return o.completeMachines()
	}
	return nil
}

// own are the directories that no pod gets of the host.
func (o *Options) own() []string { return []string{o.Roots.Data, o.Roots.State, o.Users} }

// Places says what of the host no pod gets.
func (e *Engine) Places() place.Rules { return place.Rules{Own: e.o.own()} }

// plugins are the node's, nil if pods have none.
func (o *Options) plugins() *cni.Options {
	if o.CNI == nil {
		return nil
	}
	own := *o.CNI
	own.Dir, own.Logger = filepath.Join(o.Roots.Data, "cni", o.Instance), o.Logger
	return &own
}

// defaultNetwork is that of pods that ask for none.
func (o *Options) defaultNetwork() network.Kind {
	if o.CNI != nil {
		return network.KindCNI
	}
	return network.KindUser
}

// completeUsers finds the directory of the leases, and takes the leases there that an
// earlier version kept among its data. An engine that is not root leases nothing,
// and has a directory that is not there.
func (o *Options) completeUsers() error {
	own := filepath.Join(o.Roots.Data, "uids")
	switch {
	case o.Users != "":
	case os.Geteuid() == 0:
		o.Users = uids.Host
	default:
		o.Users = own
	}
	if o.Users == own {
		return nil
	}
	return uids.Migrate(o.Users, own)
}

// hostOf is what this host has for its VMs.
func hostOf() sizing.Host {
	h := sizing.Host{CPUs: runtime.NumCPU()}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		h.MemoryMiB = int(info.Totalram * uint64(info.Unit) >> 20)
	}
	return h
}

// enter counts a goroutine that Close waits for, unless the engine is closed. The
// goroutine calls wg.Done at its end.
func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Add(1)
	return true
}

// spawn runs f in a goroutine that Close waits for, unless the engine is closed.
func (e *Engine) spawn(f func()) bool {
	if !e.enter() {
		return false
	}
	go func() {
		defer e.wg.Done()
		f()
	}()
	return true
}

// do joins the operation of key or starts f with the engine's context, and returns
// its result, or ctx's error. The operation belongs to what it is about and not to
// who asked: a request that goes away leaves it running.
func (e *Engine) do(ctx context.Context, key string, f func(context.Context) (string, error)) (string, error) {
	result := e.flights.DoChan(key, func() (any, error) {
		if !e.enter() {
			return "", errClosed
		}
		defer e.wg.Done()
		return f(timeline.Carry(e.ctx, ctx))
	})
	select {
	case r := <-result:
		id, _ := r.Val.(string)
		return id, r.Err
	case <-ctx.Done():
		return "", failure.Wrap(ctx.Err(), "wait for %s, which goes on", key)
	}
}

// startsPerCPU is how many pods and containers are made at once for each of the
// host's processors. More would take no less time in all, and each so long that
// its steps miss their deadlines.
const startsPerCPU = 4

// admit waits for the caller's turn to make a pod or a container, in the order of
// the calls. The end of ctx, or of the engine, ends the wait.
func (e *Engine) admit(ctx context.Context) (done func(), err error) {
	select {
	case e.turns <- struct{}{}:
		return func() { <-e.turns }, nil
	case <-ctx.Done():
		return nil, failure.Wrap(ctx.Err(), "wait for a turn to start")
	}
}

// Images are the instance's.
func (e *Engine) Images() *image.Store { return e.images }

// Volumes are those with names, of all instances.
func (e *Engine) Volumes() *named.Store { return e.named }

// Guest is what VMs boot.
func (e *Engine) Guest() guest.Bundle { return e.o.Guest }

// HostPaths are the directories below which clients' paths lie.
func (e *Engine) HostPaths() hostpath.Dirs { return e.paths }

// Close ends the warm VMs and lets go of the pods, which run on. Operations under way
// fail and are undone. It returns when no goroutine of the engine runs any more;
// ctx is not obeyed in that, as each is bounded by itself. Networks that no pod
// uses are taken down.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.wg.Wait()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.wg.Wait()
	ctx = context.WithoutCancel(ctx)
	var err error
	if e.parents != nil {
		err = errors.Join(err, e.parents.Close())
	}
	e.mu.Lock()
	pods := slices.Collect(maps.Values(e.pods))
	e.mu.Unlock()
	for _, p := range pods {
		p.datagrams.Close()
		p.release()
	}
	e.events.Close()
	e.groups.Tidy()
	live, liveErr := e.livePods()
	err = errors.Join(err, liveErr)
	if !live {
		err = errors.Join(err, e.networks.Release(ctx))
	}
	e.networks.Close()
	err = errors.Join(err, e.machines.Close(), e.unlock())
	if err != nil {
		return fmt.Errorf("close the engine: %w", err)
	}
	return nil
}

// livePods tells whether a pod on disk may have a VM: the engine need not hold it, as
// one whose removal has failed. What cannot be read may be one.
func (e *Engine) livePods() (bool, error) {
	pods, damaged, err := e.store.Pods()
	live := slices.ContainsFunc(pods, func(p *store.Pod) bool { return p.Phase != store.Stopped })
	return live || len(damaged) > 0 || err != nil, err
}
