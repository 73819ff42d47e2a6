// Package pod supervises one Kubernetes pod over the CRI, as a kubelet does: it pulls the images, creates the sandbox,
// starts the containers, restarts them by the pod's policy, and reports the pod's status.
//
// It uses only the interfaces RuntimeService and ImageManagerService of k8s.io/cri-api, so it works over any CRI
// implementation. All its state can be read back from the CRI: labels and annotations are the kubelet's. If a sandbox
// of the pod's UID exists, Run adopts it.
package pod

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podstatus"
	"github.com/bulkhead-project/bulkhead/pod/watch"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Pod is one supervised pod. The protocol: New; one Run, which lasts until the pod has ended; any number of Status,
// Stop and Kill from any goroutine; Delete after Run has returned.
type Pod struct {
	options Options
	pod     *corev1.Pod
	log     *slog.Logger

	mu      sync.Mutex
	status  corev1.PodStatus
	changed chan struct{}  // closed at the next change of status
	stop    *time.Duration // the grace of the newest request to stop; nil for none
	wake    chan struct{}  // has room for one; wakes Run
	sandbox string
	current map[string]string // current container ids by name
	ending  map[string]bool   // ids of containers that are being stopped for a restart
	added   []*container      // all containers that Debug has added
	patient bool              // FailFast no longer applies

	observed    chan struct{} // closed when Run has first read back the pod
	observeOnce sync.Once
	volumes     *volume.Manager
	wanted      *corev1.Pod          // pod with all changes by Resize and Update; nil for none
	refused     *podstatus.Condition // why the updater cannot grant the resources of wanted
	asked       int                  // how often wanted was replaced
	applied     int                  // the value of asked that status includes
}

// New prepares a pod without touching the runtime. It returns an error for a pod that cannot be run: without a name,
// UID or container, or with an annotation that is reserved for the engine.
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

// Run supervises the pod until it has ended, by its restart policy, Stop or Kill. It then stops the sandbox. Containers
// and logs remain until Delete. If ctx ends first, Run returns ctx's error and leaves the pod running for a later Run
// to adopt. Call it once.
func (p *Pod) Run(ctx context.Context) error { return newRun(p).run(ctx) }

// Status returns the pod's status as in the API; the caller may keep it.
func (p *Pod) Status() corev1.PodStatus {
	status, _ := p.Watch()
	return status
}

// Watch returns the status and a channel that is closed at its next change.
func (p *Pod) Watch() (corev1.PodStatus, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.status.DeepCopy(), p.changed
}

// Sandbox returns the CRI id of the pod's current sandbox, empty before it exists.
func (p *Pod) Sandbox() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sandbox
}

// Container returns the CRI id of the newest container with that name.
func (p *Pod) Container(name string) (id string, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, found = p.current[name]
	return id, found
}

// Changed wakes Run, which calls Options.Conditions and Options.Turn again.
func (p *Pod) Changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// KeepTrying turns Options.FailFast off.
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

// Observed returns a channel that is closed when Run has first read back the pod. Until then, the status of an adopted
// pod looks like the status of a new one.
func (p *Pod) Observed() <-chan struct{} { return p.observed }

// announceObserved announces that the status is valid. It calls Published too, for observers that only hear of changes.
func (p *Pod) announceObserved() {
	close(p.observed)
	if p.options.Published != nil {
		p.options.Published()
	}
}

// ExitCode returns the pod's exit code as a command's: the code of the first failed container, in the pod's order,
// init containers first, else 0. Sidecars do not count. It is unknown before the pod has ended.
func (p *Pod) ExitCode() (code int, known bool) {
	status := p.Status()
	return podstatus.ExitCode(&p.pod.Spec, &status)
}

// publish replaces the status, which includes all changes up to asked, and notifies the watchers.
func (p *Pod) publish(status corev1.PodStatus, asked int, sandbox string, ids map[string]string, ending map[string]bool) {
	p.mu.Lock()
	changed := !reflect.DeepEqual(status, p.status) || sandbox != p.sandbox || !maps.Equal(ids, p.current) || !maps.Equal(ending, p.ending)
	if changed || asked != p.applied {
		p.status, p.sandbox, p.current, p.ending, p.applied = status, sandbox, ids, ending, asked
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.mu.Unlock()
	if changed && p.options.Published != nil {
		p.options.Published()
	}
}

// containers returns the ids of the newest containers.
func (p *Pod) containers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.current))
}
