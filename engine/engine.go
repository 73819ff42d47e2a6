// Package engine starts, adopts, reaps and removes the pods of this host. Each pod is a VM with its own shim. The
// engine knows no client's protocol. A door asks for a pod and its containers with the requests of this package. It
// passes bytes of its own along, which the engine keeps and never reads.
//
// The engine keeps nothing in memory that it cannot rebuild. Its state lies in three places:
//
//	$DATA/names/<instance>/     one file for each reserved name, with the pod's id;
//	                            created first, removed last
//	$DATA/sandboxes/<id>/       pod.json, containers/<cid>/{container,exit}.json,
//	                            and vm/, which belongs to the shim
//	$STATE/<instance>/<id>/     the shim's sockets and the containers' bundles
//
// The life of a pod: reserve → store (phase "starting") → network and shim → CreateSandbox, StartSandbox → publish
// → phase "ready". From then on clients see it. A crash in between leaves a name and a phase, from which Reap
// undoes the steps. A stopped pod has no process; its containers' exits are on disk.
//
// Errors carry a gRPC status code (package failure).
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/kinds"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/unwind"
	"github.com/bulkhead-project/bulkhead/engine/vms"
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
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/network/cni"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
	"github.com/bulkhead-project/bulkhead/share"
	"github.com/bulkhead-project/bulkhead/shim/confine"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// Options configure an engine. Roots and Instance are required.
type Options struct {
	Roots    dirs.Roots
	Instance string // "run", "cri", "node": lower-case letters, digits and '-'
	// HostPaths are the directories for the paths that clients name: log directories and sources of mounts. They
	// must exist. The engine refuses a path outside them, and follows no link out of them.
	HostPaths []string
	// LogBytes is the size limit of a container's log file until ReopenLog; 0 means no limit. A container with a
	// full log waits.
	LogBytes int64
	// Building, if set, is called before the engine builds the template for a pod. podUID is the UID in the pod's
	// Identity. Building must not block.
	Building func(podUID string)
	// Observer receives the engine's measurements; it may be nil.
	Observer measure.Observer
	// Logger is slog.Default() if nil.
	Logger *slog.Logger

	// Shim and Share are the paths of bulkhead-shim and bulkhead-share. If empty, the engine finds them beside the
	// executable.
	Shim, Share string
	// Guest is the guest bundle of the VMs; the zero value means the installed one.
	Guest guest.Bundle
	// Users is the directory with the leases of pods' users. Empty selects the common directory of root's engines
	// on this host.
	Users string
	// Images is the instance's image store; nil opens the one in Roots.
	Images *image.Store
	// Network returns the provider of a kind. The engine calls it once for each kind. Nil selects bulkhead's own
	// networks.
	Network func(kind network.Kind) (network.Provider, error)
	// Shims, VMs and Groups are for tests; nil selects real processes and the host's cgroups.
	Shims  link.Shims
	VMs    vms.Source
	Groups *group.Groups
	// Parents forks VMs. If it and VMs are nil, the engine opens both.
	Parents kinds.Parents
	// Warm is the path of bulkhead-warm.so. If empty, the engine finds it beside the executable.
	Warm string
	// CNI locates the node's network plugins. With it, pods that choose no network get a CNI network. The engine
	// fills in Dir and Logger.
	CNI *cni.Options
	// NoForks turns forks off: every VM is a clone or boots.
	NoForks bool
	// Tenant returns the owner of a pod. Pods of different tenants never share a parent. Nil means that all pods
	// have one tenant.
	Tenant func(Identity) string
	// ForksPerParent is the number of forks after which a parent is replaced; 0 selects the default of package
	// parents.
	ForksPerParent int
	// DefaultMemory (in MiB) and DefaultVCPUs are the size of a VM for a pod without limits; 0 selects a size that
	// fits the host (sizing.DefaultsFor).
	DefaultMemory, DefaultVCPUs int
	// ReapEvery is the interval of Reap; 0 means a minute.
	ReapEvery time.Duration

	networks *networks.Networks // from Network
}

// Engine runs the pods of an instance. Its methods are safe for concurrent use.
type Engine struct {
	o        Options
	log      *slog.Logger
	store    *store.Store
	shims    link.Shims
	kinds    kinds.Kinds
	images   *image.Store
	paths    hostpath.Dirs
	named    *named.Store
	disks    disks.Disks
	groups   *group.Groups
	unwinder *unwind.Unwinder
	missing  error        // the kernel lacks these walls around VMs
	unlock   func() error // releases the locks of lock
	found    Reaped       // by Open

	work
	registry
	events  hub.Hub[Event]
	watches dirwatch.Watches
}

var errClosed = failure.New(errdefs.ErrUnavailable, "the engine is closed")

// lockWait bounds the wait for another engine of the same instance to exit.
const lockWait = 5 * time.Second

// Open opens the engine of an instance and adopts the pods of its predecessor. An instance has one engine at a
// time: while another one runs, Open returns an error that matches flock.ErrLocked. Open logs pods that it cannot
// adopt or undo, and leaves them to Reap.
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
		return nil, errors.Join(err, o.VMs.Close())
	}
	// A killed engine leaves the sockets of its parents; those ended with it.
	if err := os.RemoveAll(o.warmDir()); err != nil {
		return nil, errors.Join(err, unlock(), o.VMs.Close())
	}
	e := &Engine{
		o: o, log: o.Logger, store: st, shims: o.Shims, images: o.Images, paths: o.HostPaths,
		disks: disks.Disks{Store: st, Maker: scratch.Maker{Templates: o.Roots.Templates()}}, groups: o.Groups,
		named: named.In(o.Roots.Data), missing: confine.Landlock(), unlock: unlock,
		registry: registry{pods: map[string]*pod{}, working: map[string]bool{}},
	}
	e.kinds = kinds.Kinds{
		VMs: o.VMs, Parents: o.Parents, Networks: o.networks, Network: o.defaultNetwork(), Guest: o.Guest, Host: hostOf(),
	}
	e.kinds.Defaults = sizing.DefaultsFor(e.kinds.Host, o.DefaultMemory, o.DefaultVCPUs)
	e.unwinder = &unwind.Unwinder{
		Store: st, Shims: e.shims, VMs: o.VMs, Images: e.images, Networks: o.networks, Disks: e.disks, Users: o.Users, Log: e.log,
		Acquire: e.acquire,
	}
	e.begin()
	e.watches.Spawn, e.watches.Match = e.spawn, volumes.Replaced
	if e.found, err = e.Reap(ctx); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	e.spawn(e.reapAgain)
	return e, nil
}

// lock takes the locks of the instance's state directory and data. Only one process can hold them.
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

// complete fills in the options that are not set.
func (o *Options) complete() (err error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Observer == nil {
		o.Observer = measure.Discard{}
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
	if o.VMs == nil {
		return o.completeVMs()
	}
	return nil
}

// ownDirs are Bulkhead's own directories. No pod may mount them.
func (o *Options) ownDirs() []string { return []string{o.Roots.Data, o.Roots.State, o.Users} }

// Places returns the rules for paths of the host that no pod may have.
func (e *Engine) Places() place.Rules { return place.Rules{Own: e.o.ownDirs()} }

// plugins returns the options of the node's network plugins, nil without CNI.
func (o *Options) plugins() *cni.Options {
	if o.CNI == nil {
		return nil
	}
	own := *o.CNI
	own.Dir, own.Logger = filepath.Join(o.Roots.Data, "cni", o.Instance), o.Logger
	return &own
}

// defaultNetwork is the kind of network for pods that choose none.
func (o *Options) defaultNetwork() network.Kind {
	if o.CNI != nil {
		return network.KindCNI
	}
	return network.KindUser
}

// completeUsers finds the directory of the leases. It migrates the leases that an earlier version kept in the data
// directory. An engine without root leases nothing; its directory does not exist.
func (o *Options) completeUsers() error {
	own := filepath.Join(o.Roots.Data, "uids")
	switch {
	case o.Users != "":
	case userns.HostRoot():
		o.Users = uids.Host
	default:
		o.Users = own
	}
	if o.Users == own {
		return nil
	}
	return uids.Migrate(o.Users, own)
}

// hostOf returns the size of this host.
func hostOf() sizing.Host {
	h := sizing.Host{CPUs: runtime.NumCPU()}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		h.MemoryMiB = int(info.Totalram * uint64(info.Unit) >> 20)
	}
	return h
}

// Images returns the instance's image store.
func (e *Engine) Images() *image.Store { return e.images }

// Volumes returns the store of named volumes, which all instances share.
func (e *Engine) Volumes() *named.Store { return e.named }

// Kinds returns the kinds of VMs, with their templates and parents.
func (e *Engine) Kinds() *kinds.Kinds { return &e.kinds }

// HostPaths returns the directories for clients' paths.
func (e *Engine) HostPaths() hostpath.Dirs { return e.paths }

// Close ends the parents and detaches from the pods, which keep running. Operations under way fail and are undone.
// Close waits for all goroutines of the engine and ignores the end of ctx meanwhile; each goroutine is bounded by
// itself. Networks without pods are removed.
func (e *Engine) Close(ctx context.Context) error {
	if !e.close() {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var err error
	if e.kinds.Parents != nil {
		err = errors.Join(err, e.kinds.Parents.Close())
	}
	for _, p := range e.all() {
		p.datagrams.Close()
		p.release()
	}
	e.events.Close()
	e.groups.Tidy()
	live, liveErr := livePods(e.store)
	err = errors.Join(err, liveErr)
	if !live {
		err = errors.Join(err, e.kinds.Networks.Release(ctx))
	}
	e.kinds.Networks.Close()
	err = errors.Join(err, e.kinds.VMs.Close(), e.unlock())
	if err != nil {
		return fmt.Errorf("close the engine: %w", err)
	}
	return nil
}

// livePods reports whether a pod on disk may have a VM, even one that the engine does not hold after a failed
// removal. An unreadable record counts as a VM.
func livePods(st *store.Store) (bool, error) {
	pods, damaged, err := st.Pods()
	live := slices.ContainsFunc(pods, func(p *store.Pod) bool { return p.Phase != store.Stopped })
	return live || len(damaged) > 0 || err != nil, err
}
