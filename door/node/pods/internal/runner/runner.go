// Package runner runs a node's pods. It is the node's door of package manager, and does not know the API server.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/images"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
	"github.com/bulkhead-project/bulkhead/pod/probe"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Objects provides the ConfigMaps and Secrets that pods refer to.
type Objects interface {
	// Of returns the objects of a pod, kept up to date until release is called.
	Of(p *corev1.Pod) (own volume.Objects, release func())
	// Known reports whether it is known for all objects of a pod if they exist.
	Known(p *corev1.Pod) bool
	// Refer also watches the objects that a pod refers to now.
	Refer(p *corev1.Pod)
	// Forget drops the objects of a pod for which Of was never called.
	Forget(uid types.UID)
}

// Resources counts the resources of a node's pods. It is safe for concurrent use.
type Resources interface {
	// Resize grants a running pod its new requests, or returns the kubelet's reason and message for a refusal.
	Resize(p *corev1.Pod) (reason, message string)
	// Hold sets a pod's resources to those in its specification, after a resize was done or given up.
	Hold(p *corev1.Pod)
}

// Watch counts events of pods. Its methods are called concurrently and must not block.
type Watch interface {
	// Seen is called before each attempt to start a pod.
	Seen(p *corev1.Pod)
	// Changed is called when a pod's status has changed or its run has ended.
	Changed(p *corev1.Pod, status func() corev1.PodStatus)
	Event(p *corev1.Pod, e pod.Event)
	Probed(p *corev1.Pod, container string, kind probe.Kind, result probe.Result, took time.Duration)
	// Removed is called when everything of a pod was removed.
	Removed(uid types.UID)
}

// Options configures a Runner. Dir, VolumeDir, Backend, Objects, Pod and Changed are required.
type Options struct {
	// Dir and VolumeDir are passed to manager.Options.
	Dir, VolumeDir string
	SeccompDir     string
	Backend        runtime.Backend
	Objects        Objects
	// Claims returns the claims and the driver volumes of a pod, which keep their own files in dir. If it is nil, pods
	// have none.
	Claims func(p *corev1.Pod, dir string) volume.Claims
	// VolumeUse returns the usage that a driver reports for a volume of a pod, and false if it reports none. It may be
	// nil.
	VolumeUse func(uid types.UID, volume string) (usage.Volume, bool)
	// VolumeAbsent reports whether a volume of a pod is a driver's and is not mounted. It may be nil.
	VolumeAbsent func(uid types.UID, volume string) bool
	// Services returns the Services that become variables of a pod. It may be nil.
	Services func(ctx context.Context, uid types.UID) ([]*corev1.Service, error)
	// Handler looks up the runtime handler of the RuntimeClass that a pod names (see pod.Options). If it is nil, the
	// name is the handler. The same holds for static pods, which work without an API server.
	Handler func(ctx context.Context, uid types.UID) (string, error)
	// Resources counts the pods' resources. It may be nil.
	Resources Resources
	Node      string
	// HostIP is the address of the node.
	HostIP        string
	ClusterDomain string
	// DNS returns the resolver configuration of a pod.
	DNS func(*corev1.Pod) *runtimeapi.DNSConfig
	// Pod returns a pod as the API server has it, or nil if the API server does not have it.
	Pod func(types.UID) *corev1.Pod
	// Changed is called for each pod with a changed status, and reports whether the pod has ended. It must not block.
	Changed func(uid types.UID, ended bool)
	// Event is called for each event of a pod, in order. It must not block.
	Event func(*corev1.Pod, pod.Event)
	// Watch counts events. It may be nil.
	Watch  Watch
	Logger *slog.Logger
}

// Runner runs the node's pods. It is safe for concurrent use.
type Runner struct {
	o       Options
	manager *manager.Manager
	images  *images.Arrivals
	systems usage.Systems  // of volumes on the host
	beside  sync.WaitGroup // goroutines of Update; they stop with its context

	files sync.Mutex // held while a static pod is added

	mu    sync.Mutex
	first map[types.UID]time.Time // when a waiting pod should first have run
}

var _ control.Runner = (*Runner)(nil)

// Open takes over the pods that an earlier process left, and runs them on. The caller must call Close.
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

// releaseEnded unmounts the claims of ended pods, in case an earlier process did not.
func (r *Runner) releaseEnded() {
	for _, p := range r.manager.All() {
		claims := p.Door().(*door).claims
		if claims == nil || !p.HasEnded() || p.Damaged() != nil { // the VM of a damaged pod may run
			continue
		}
		if status := p.Status(); podstatus.Ended(&status) {
			claims.Release()
		}
	}
}

// changed reports a changed status of a pod.
func (r *Runner) changed(p *manager.Pod) {
	if r.o.Watch != nil {
		r.o.Watch.Changed(p.Original(), p.Status)
	}
	r.o.Changed(p.UID(), p.HasEnded())
}

// Close stops supervision. The pods keep running.
func (r *Runner) Close() {
	r.beside.Wait()
	r.manager.Close()
}

// objectsWait is how long a pod's start waits for its objects to become known.
const objectsWait = 5 * time.Second

// Run implements control.Runner.
func (r *Runner) Run(_ context.Context, p *corev1.Pod) error {
	if r.o.Watch != nil {
		r.o.Watch.Seen(p)
	}
	if !r.o.Objects.Known(p) && r.waited(p.UID) < objectsWait {
		return fmt.Errorf("objects of pod %s/%s: %w", p.Namespace, p.Name, control.ErrWaits)
	}
	given := *p // shares data with the source's pod, and neither is modified
	given.Status, given.ManagedFields = corev1.PodStatus{}, nil
	supervised, err := r.manager.Add(manager.Record{Pod: &given}, manager.Objects{})
	switch {
	case errors.Is(err, errdefs.ErrAlreadyExists):
		return nil
	case errors.Is(err, errdefs.ErrInvalidArgument):
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	case err != nil:
		return err
	}
	supervised.Run()
	return nil
}

// waited returns how long a pod has been waiting.
func (r *Runner) waited(uid types.UID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, waits := r.first[uid]; !waits {
		r.first[uid] = time.Now()
	}
	return time.Since(r.first[uid])
}

// Stop implements control.Runner.
func (r *Runner) Stop(ctx context.Context, uid types.UID, grace int64) error {
	p, err := r.manager.Get(uid)
	if errors.Is(err, errdefs.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.Stop(ctx, &grace)
}

// Evict ends a pod within grace, in seconds, for a reason that its status shows. It returns when the pod has ended.
func (r *Runner) Evict(ctx context.Context, uid types.UID, grace int64, why manager.Eviction) error {
	p, err := r.manager.Get(uid)
	if errors.Is(err, errdefs.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.Evict(ctx, grace, why)
}

// freeTimeout bounds the removal of one pod's sandbox.
const freeTimeout = 20 * time.Second

// Free removes the sandboxes of all ended pods, and so the disk space that they hold. The pods' statuses and logs stay.
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

// Remove implements control.Runner.
func (r *Runner) Remove(ctx context.Context, uid types.UID) error {
	p, err := r.manager.Get(uid)
	if errors.Is(err, errdefs.ErrNotFound) {
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

// Forget implements control.Runner.
func (r *Runner) Forget(uid types.UID) {
	r.mu.Lock()
	delete(r.first, uid)
	r.mu.Unlock()
	r.o.Objects.Forget(uid)
	if r.o.Watch != nil {
		r.o.Watch.Removed(uid)
	}
}

// Has implements control.Runner.
func (r *Runner) Has(uid types.UID) bool {
	_, err := r.manager.Get(uid)
	return err == nil
}

// HasEnded implements control.Runner.
func (r *Runner) HasEnded(uid types.UID) bool {
	p, err := r.manager.Get(uid)
	return err == nil && p.HasEnded()
}

// Spec implements control.Runner.
func (r *Runner) Spec(uid types.UID) *corev1.Pod {
	p, err := r.manager.Get(uid)
	if err != nil {
		return nil
	}
	return p.Spec()
}

// All implements control.Runner.
func (r *Runner) All() (all []types.UID) {
	for _, p := range r.manager.All() {
		all = append(all, p.UID())
	}
	return all
}

// Get returns the supervised pod with a UID, or nil.
func (r *Runner) Get(uid types.UID) *manager.Pod {
	p, err := r.manager.Get(uid)
	if err != nil {
		return nil
	}
	return p
}

// Find returns the supervised pod with a name, or nil. Of several it prefers the one that the API server has, then one
// that is not being ended, then the newest. Two pods of one name may have been created in the same second.
func (r *Runner) Find(namespace, name string) (found *manager.Pod) {
	best := -1
	for _, p := range r.manager.All() {
		if given := p.Original(); given.Namespace != namespace || given.Name != name {
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

// Pods returns the supervised pods, oldest first.
func (r *Runner) Pods() []*manager.Pod { return r.manager.All() }
