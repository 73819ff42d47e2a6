// Package runner runs a node's pods: it is the node's door of package manager, and knows no API
// server.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/pods"
	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/images"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
	"github.com/bulkhead-project/bulkhead/pod/probe"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Backend is the runtime below a node, with what it can beyond the CRI. What is nil it cannot.
type Backend struct {
	Runtime     internalapi.RuntimeService
	Images      internalapi.ImageManagerService
	Dial        func(ctx context.Context, sandbox string, port int) (net.Conn, error)
	Pauses      func(sandbox string) (times uint64, now bool)
	Resume      func(ctx context.Context, sandbox string) error
	Allocatable func(ctx context.Context, sandbox string) (corev1.ResourceList, error)
	// Usages are what its pods use, with their emptyDirs by their names; nil is what the CRI tells.
	Usages func(ctx context.Context) ([]usage.Pod, error)
	// HeldMemory is what of the host's memory ends with a sandbox, in bytes, as the host counts it; false is that it does not.
	HeldMemory func(sandbox string) (bytes int64, known bool)
	// HeldDisk is the same of its disk; nil is that the host does not count.
	HeldDisk func(sandbox string) int64
	// Refuse names what a pod asks for and none can have on this runtime, empty for nothing.
	Refuse func(*corev1.Pod) string
	// Network is the kind of network of pods that do not have the host's, as engine.Resolver knows it.
	Network string
	// Places says what no pod gets of the host.
	Places place.Rules
}

// Objects are what a node has of the ConfigMaps and Secrets that its pods refer to.
type Objects interface {
	// Of are those of a pod, from now on until release.
	Of(p *corev1.Pod) (own volume.Objects, release func())
	// Known tells whether it is known of all objects of a pod that has been given them whether
	// they are there.
	Known(p *corev1.Pod) bool
	// Refer has those followed as well that a pod refers to now.
	Refer(p *corev1.Pod)
	// Forget drops what is kept of a pod that was never given them.
	Forget(uid types.UID)
}

// Resources keep count of what the pods of a node have. The methods may be called at once.
type Resources interface {
	// Resize gives a pod that runs the resources that it asks for now, or says why it keeps its own, in a
	// kubelet's words.
	Resize(p *corev1.Pod) (reason, message string)
	// Hold has a pod have what its specification says: a resize is done, or was given up.
	Hold(p *corev1.Pod)
}

// Watch is told what becomes of pods, to count it. Its methods are called at once, and must not block.
type Watch interface {
	// Seen is called with a pod that is to be started, each time that it is tried.
	Seen(p *corev1.Pod)
	// Changed is called when a pod's status is another one, or its run has ended.
	Changed(p *corev1.Pod, status func() corev1.PodStatus)
	Event(p *corev1.Pod, e pod.Event)
	Probed(p *corev1.Pod, container string, kind probe.Kind, result probe.Result, took time.Duration)
	// Removed is called when nothing is left of a pod.
	Removed(uid types.UID)
}

// Options are a Runner's. Dir, VolumeDir, Backend, Objects, Pod and Changed are required.
type Options struct {
	// Dir and VolumeDir are those of manager.Options.
	Dir, VolumeDir string
	SeccompDir     string
	Backend        Backend
	Objects        Objects
	// Claims are the claims of a pod, and the volumes of drivers, whose own directory is dir; nil has none.
	Claims func(p *corev1.Pod, dir string) volume.Claims
	// VolumeUse is what a driver tells of a volume of a pod, false for nothing; nil is that none tells.
	VolumeUse func(uid types.UID, volume string) (usage.Volume, bool)
	// VolumeAbsent tells whether a volume of a pod is a driver's that is not mounted; nil is that none is.
	VolumeAbsent func(uid types.UID, volume string) bool
	// Services are those of which a pod gets variables; nil is none.
	Services func(ctx context.Context, uid types.UID) ([]*corev1.Service, error)
	// Handler looks up the runtime handler of a RuntimeClass that a pod names (pod.Options); nil takes the name for it, as
	// static pods do, which need no API server.
	Handler func(ctx context.Context, uid types.UID) (string, error)
	// Resources are what the pods have of the node; nil is nobody who counts.
	Resources Resources
	Node      string
	// HostIP is the address of the node.
	HostIP        string
	ClusterDomain string
	// DNS is the resolver configuration of a pod.
	DNS func(*corev1.Pod) *runtimeapi.DNSConfig
	// Pod is a pod as the API server has it, nil for one that it does not have.
	Pod func(types.UID) *corev1.Pod
	// Changed is told of each pod whose status has changed; it must not block.
	Changed func(types.UID)
	// Event is told what happens to pods, in their order; it must not block.
	Event func(*corev1.Pod, pod.Event)
	// Watch counts; nil is nobody.
	Watch  Watch
	Logger *slog.Logger
}

// Runner is the node's door. Its methods may be called at once.
type Runner struct {
	o       Options
	manager *manager.Manager
	images  *images.Arrivals
	systems usage.Systems  // of volumes on the host
	beside  sync.WaitGroup // what Update has begun; it ends with its context

	files sync.Mutex // held while a static pod is taken in

	mu    sync.Mutex
	first map[types.UID]time.Time // when pods that wait were first to be run
}

var _ pods.Runner = (*Runner)(nil)

// Open takes over what an earlier process has left, and goes on with it. The caller calls
// Close.
func Open(ctx context.Context, o Options) (*Runner, error) {
	r := &Runner{
		o: o, first: map[types.UID]time.Time{}, images: &images.Arrivals{ImageManagerService: o.Backend.Images},
	}
	m, err := manager.Open(ctx, manager.Options{
		Dir: o.Dir, VolumeDir: o.VolumeDir, Runtime: o.Backend.Runtime, Door: r.door, Logger: o.Logger,
		ByUID: true, Changed: r.changed, Resized: r.resized,
	})
	if err != nil {
		return nil, fmt.Errorf("take over the pods: %w", err)
	}
	r.manager = m
	r.releaseEnded()
	return r, nil
}

// releaseEnded has the claims of pods that have ended be unmounted, where an earlier process did not come so far.
func (r *Runner) releaseEnded() {
	for _, p := range r.manager.All() {
		claims := p.Door().(*door).claims
		if claims == nil || !p.HasEnded() || p.Damaged() != nil { // whose VM may run
			continue
		}
		if status := p.Status(); podstatus.Ended(&status) {
			claims.Release()
		}
	}
}

// changed is told that a pod's status is another one.
func (r *Runner) changed(p *manager.Pod) {
	if r.o.Watch != nil {
		r.o.Watch.Changed(p.Given(), p.Status)
	}
	r.o.Changed(p.UID())
}

// Close ends supervision. The pods run on.
func (r *Runner) Close() {
	r.beside.Wait()
	r.manager.Close()
}

// settle is how long a pod waits at most for what its objects are, before it is started without
// knowing.
const settle = 5 * time.Second

// Run implements pods.Runner.
func (r *Runner) Run(_ context.Context, p *corev1.Pod) error {
	if r.o.Watch != nil {
		r.o.Watch.Seen(p)
	}
	if !r.o.Objects.Known(p) && r.waited(p.UID) < settle {
		return fmt.Errorf("objects of pod %s/%s: %w", p.Namespace, p.Name, pods.ErrWaits)
	}
	given := *p // nobody changes what it shares with the source's
	given.Status, given.ManagedFields = corev1.PodStatus{}, nil
	supervised, err := r.manager.Add(manager.Record{Pod: &given}, manager.Objects{})
	switch {
	case errors.Is(err, manager.ErrExists):
		return nil
	case errors.Is(err, manager.ErrInvalid):
		return fmt.Errorf("%w: %w", pods.ErrRejected, err)
	case err != nil:
		return err
	}
	supervised.Run()
	return nil
}

// waited is how long a pod waits.
func (r *Runner) waited(uid types.UID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, waits := r.first[uid]; !waits {
		r.first[uid] = time.Now()
	}
	return time.Since(r.first[uid])
}

// Stop implements pods.Runner.
func (r *Runner) Stop(ctx context.Context, uid types.UID, grace int64) error {
	p, err := r.manager.Get(uid)
	if errors.Is(err, manager.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.Stop(ctx, &grace)
}

// Condemn ends a pod within grace, in seconds, for a reason that its status tells, and returns when it has ended.
func (r *Runner) Condemn(ctx context.Context, uid types.UID, grace int64, why manager.Verdict) error {
	p, err := r.manager.Get(uid)
	if errors.Is(err, manager.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.Condemn(ctx, grace, why)
}

// freeTimeout bounds the removal of what one pod left.
const freeTimeout = 20 * time.Second

// Free removes the sandboxes of all pods that have ended, with the disk that they hold. What is told of the pods, and
// their logs, stay.
func (r *Runner) Free(ctx context.Context) error {
	var errs []error
	for _, p := range r.manager.All() {
		if p.HasEnded() {
			ctx, cancel := context.WithTimeout(ctx, freeTimeout)
			errs = append(errs, p.Free(ctx))
			cancel()
		}
	}
	return errors.Join(errs...)
}

// Remove implements pods.Runner.
func (r *Runner) Remove(ctx context.Context, uid types.UID) error {
	p, err := r.manager.Get(uid)
	if errors.Is(err, manager.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.Remove(ctx, false); err != nil {
		return err
	}
	if r.o.Watch != nil {
		r.o.Watch.Removed(uid)
	}
	return nil
}

// Forget implements pods.Runner.
func (r *Runner) Forget(uid types.UID) {
	r.mu.Lock()
	delete(r.first, uid)
	r.mu.Unlock()
	r.o.Objects.Forget(uid)
	if r.o.Watch != nil {
		r.o.Watch.Removed(uid)
	}
}

// Has implements pods.Runner.
func (r *Runner) Has(uid types.UID) bool {
	_, err := r.manager.Get(uid)
	return err == nil
}

// HasEnded implements pods.Runner.
func (r *Runner) HasEnded(uid types.UID) bool {
	p, err := r.manager.Get(uid)
	return err == nil && p.HasEnded()
}

// Given implements pods.Runner.
func (r *Runner) Given(uid types.UID) *corev1.Pod {
	p, err := r.manager.Get(uid)
	if err != nil {
		return nil
	}
	return p.Spec()
}

// All implements pods.Runner.
func (r *Runner) All() (all []types.UID) {
	for _, p := range r.manager.All() {
		all = append(all, p.UID())
	}
	return all
}

// Get is the supervised pod of a UID, nil for none.
func (r *Runner) Get(uid types.UID) *manager.Pod {
	p, err := r.manager.Get(uid)
	if err != nil {
		return nil
	}
	return p
}

// Find is the supervised pod of a name, nil for none: of several the one that the API server has, else one that is not
// being ended, else the newest. Two of one name may have been made in the same second.
func (r *Runner) Find(namespace, name string) (found *manager.Pod) {
	best := -1
	for _, p := range r.manager.All() {
		if given := p.Given(); given.Namespace != namespace || given.Name != name {
			continue
		}
		rank := 0
		if r.o.Pod(p.UID()) != nil {
			rank = 2
		}
		if !p.Ending() {
			rank++
		}
		if rank >= best {
			found, best = p, rank
		}
	}
	return found
}

// Pods are the supervised pods, the oldest first.
func (r *Runner) Pods() []*manager.Pod { return r.manager.All() }
