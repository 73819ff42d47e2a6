// Package pod supervises one Kubernetes pod over the CRI, as a kubelet does:
// it pulls the images, makes the sandbox, starts the containers, restarts them
// by the pod's policy, and tells the pod's status.
//
// It uses the interfaces RuntimeService and ImageManagerService of k8s.io/cri-api
// and nothing else, so it works over any CRI implementation. All it knows it
// can read back from the CRI: labels and annotations are the kubelet's, and a
// Pod that is run where a sandbox of the same UID exists takes that over.
package pod

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podstatus"
	"github.com/bulkhead-project/bulkhead/pod/watch"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Pod is one supervised pod. The protocol: New; one Run, which lasts until the
// pod has ended; any number of Status, Stop and Kill from any goroutine; after
// Run has returned, Delete.
type Pod struct {
	options Options
	pod     *corev1.Pod
	log     *slog.Logger

	mu      sync.Mutex
	status  corev1.PodStatus
	changed chan struct{} // closed at the next change of status
	stop    *stopRequest
	wake    chan struct{} // has room for one; Run looks at stop
	sandbox string
	current map[string]string // current container ids by name
	ending  map[string]bool   // ids of those that are ended to be started anew
	added   []*container      // by Debug, ever
	patient bool              // FailFast is over

	observed chan struct{} // closed when Run has first looked
	look     sync.Once
	volumes  *volume.Manager
	wanted   *corev1.Pod          // pod with what Resize and Update have asked for; nil for nothing
	refused  *podstatus.Condition // why the resources of wanted cannot be had, by the one who updated it
	asked    int                  // how often wanted was replaced
	taken    int                  // how much of that status knows of
}

// New prepares a pod without touching the runtime. A pod that cannot be run
// (no name, no UID, no container, an annotation of the engine's own) is an error.
func New(options Options) (*Pod, error) {
	pod := options.Pod
	if err := options.Check(); err != nil {
		return nil, err
	}
	if options.Runtime == nil || options.Images == nil {
		return nil, fmt.Errorf("pod %s: no runtime given", pod.Name)
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Watch == nil {
		options.Watch = watch.New(options.Runtime, options.Logger)
	}
	p := &Pod{
		options: options,
		pod:     pod,
		log:     options.Logger.With("pod", pod.Namespace+"/"+pod.Name, "uid", string(pod.UID)),
		changed: make(chan struct{}), observed: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		volumes: volume.New(options.Volumes(), options.AllObjects(), options.Places),
	}
	p.status = newRun(p).makeStatus()
	return p, nil
}

// Run supervises the pod until it has ended: every container by its restart
// policy, or by Stop or Kill. Its sandbox is stopped then, its containers and
// logs remain until Delete. When ctx ends before, Run returns ctx's error and
// leaves the pod running, for a later Run to take over. It is called once.
func (p *Pod) Run(ctx context.Context) error { return newRun(p).run(ctx) }

// Status is the pod's status as the API has it; the caller may keep it.
func (p *Pod) Status() corev1.PodStatus {
	status, _ := p.Watch()
	return status
}

// Watch returns the status and a channel that is closed when it has changed.
func (p *Pod) Watch() (corev1.PodStatus, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.status.DeepCopy(), p.changed
}

// Sandbox is the CRI id of the pod's current sandbox, empty before there is one.
func (p *Pod) Sandbox() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sandbox
}

// Container is the CRI id of the newest container of that name.
func (p *Pod) Container(name string) (id string, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, found = p.current[name]
	return id, found
}

// Changed has the pod's status made anew from what Options.Conditions gives.
func (p *Pod) Changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// KeepTrying ends what Options.FailFast asks for: nobody waits for the start any
// more.
func (p *Pod) KeepTrying() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patient = true
}

func (p *Pod) failsFast() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.options.FailFast && !p.patient
}

// Observed is closed when Run has first read back what there is of the pod: until
// then the status of one that is taken over is that of one that begins.
func (p *Pod) Observed() <-chan struct{} { return p.observed }

// firstLook says that the status can be relied on, also to who hears of its changes alone.
func (p *Pod) firstLook() {
	close(p.observed)
	if p.options.Published != nil {
		p.options.Published()
	}
}

// ExitCode is the pod's as a command's: that of the first container, in the
// pod's order, initial ones first, that failed, else 0. How sidecars end does
// not matter. It is not known before the pod has ended.
func (p *Pod) ExitCode() (code int, known bool) {
	status := p.Status()
	return podstatus.ExitCode(&p.pod.Spec, &status)
}

// publish replaces the status, made of what was asked for until then, and tells the watchers.
func (p *Pod) publish(status corev1.PodStatus, asked int, sandbox string, ids map[string]string, ending map[string]bool) {
	if p.replace(status, asked, sandbox, ids, ending) && p.options.Published != nil {
		p.options.Published()
	}
}

func (p *Pod) replace(status corev1.PodStatus, asked int, sandbox string, ids map[string]string, ending map[string]bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = !reflect.DeepEqual(status, p.status) || sandbox != p.sandbox || !maps.Equal(ids, p.current) || !maps.Equal(ending, p.ending)
	if !changed && asked == p.taken {
		return false
	}
	p.status, p.sandbox, p.current, p.ending, p.taken = status, sandbox, ids, ending, asked
	close(p.changed)
	p.changed = make(chan struct{})
	return changed
}

// containers are the ids of the newest ones.
func (p *Pod) containers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.current))
}
