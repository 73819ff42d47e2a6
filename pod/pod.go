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
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/probe"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Options describe one pod and how it is run. They are not changed, and the pod
// they name must not be changed while it is in use.
type Options struct {
	// Pod is the defaulted and validated pod (package podapi) with a UID.
	Pod     *corev1.Pod
	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService
	// LogDir is the pod's own log directory; a container logs to
	// LogDir/<container>/<restart count>.log.
	LogDir string
	// MessageDir is the pod's own directory for the termination messages of its
	// containers; with none they are not read.
	MessageDir string
	// VolumeDir is where the host paths of the pod's volumes are named, and
	// where those of ConfigMaps, Secrets and the downward API are written: a
	// directory of the pod's own, which goes with it. Of an emptyDir nothing
	// lies there: the engine knows it by its path. Empty is
	// /var/lib/kubelet/pods/<uid>/volumes.
	VolumeDir string
	// Objects are the ConfigMaps and Secrets of the pod's namespace; nil is
	// none.
	Objects volume.Objects
	// Allocatable, if set, tells what a container of that sandbox has that sets
	// no limit, for resourceFieldRef.
	Allocatable func(ctx context.Context, sandbox string) (corev1.ResourceList, error)
	// HostsFile is where the pod's /etc/hosts is written; its directory exists.
	// Empty leaves the file to the runtime, and hostAliases are refused.
	HostsFile string
	// SeccompDir is the directory of the profiles of type Localhost. Empty
	// refuses them.
	SeccompDir string
	// DNS, if set, is the machine's resolver configuration, which the pod's own is
	// laid over. Without it the runtime has its own.
	DNS func() *runtimeapi.DNSConfig
	// ClusterDomain ends the name of a pod with a subdomain; empty is cluster.local.
	ClusterDomain string

	Network  string // "user", "none" or empty for the engine's default
	Template string // "off" or empty
	Accel    string // "kvm", "tcg" or empty for the probed one
	// Ports are published beside the pod's own hostPorts.
	Ports []*runtimeapi.PortMapping
	// HostIP is shown in the status.
	HostIP string
	// NodeName is what spec.nodeName is for the environment where the pod has
	// none.
	NodeName string

	// Dial connects to a port of the pod whose sandbox it is given, for probes and
	// hooks; nil dials the pod's address. An error that matches
	// syscall.ECONNREFUSED says that nothing listens, one with the code
	// Unavailable, FailedPrecondition or NotFound nothing about the pod.
	Dial func(ctx context.Context, sandbox string, port int) (net.Conn, error)
	// Pauses tells how often the machine of a sandbox has been paused, and whether
	// it is now: probes do not count what happens across that. Nil is never. It
	// must not block.
	Pauses func(sandbox string) (times uint64, now bool)
	// Resume, if set, lets the machine of a sandbox go on that is paused, and does
	// nothing to another: what is to end, by its preStop hook or a signal, runs.
	Resume func(ctx context.Context, sandbox string) error
	// Last is what an earlier Run's Verdicts said, by the containers' CRI ids:
	// those that still run are as started and ready as they were then, until
	// their probes say otherwise, and those that were being ended in order to be
	// started anew are. Of those that it does not tell of nothing is known.
	Last map[string]probe.Verdict
	// Conditions, if set, are those that others set on the pod, for its readiness
	// gates. It is asked on the goroutine of Run and must not block; Changed
	// says that its answer has changed.
	Conditions func() []corev1.PodCondition

	// FailFast ends Run with an error at the first image, sandbox or container
	// that cannot be had, instead of trying again for ever.
	FailFast bool

	// Event, if set, is told what happens, in order, from the goroutine of Run;
	// it must not block.
	Event  func(Event)
	Logger *slog.Logger
}

func (o *Options) objects() volume.Objects {
	if o.Objects == nil {
		return volume.None{}
	}
	return o.Objects
}

func (o *Options) volumeDir() string {
	if o.VolumeDir == "" {
		return filepath.Join("/var/lib/kubelet/pods", string(o.Pod.UID), "volumes")
	}
	return o.VolumeDir
}

// Event is one outcome, with the kubelet's reasons.
type Event struct {
	Time      time.Time
	Warning   bool
	Reason    string // Pulling, Pulled, Created, Started, Killing, BackOff, Failed, SandboxChanged, …
	Container string // empty: the pod
	Message   string
}

// The classes of Run's errors, matched with errors.Is.
var (
	// ErrImage: FailFast is set and an image cannot be had.
	ErrImage = errors.New("no image")
	// ErrStart: FailFast is set and the sandbox or a container cannot be started.
	ErrStart = errors.New("cannot be started")
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
	current map[string]string           // current container ids by name
	ending  map[string]bool             // ids of those that are ended to be started anew
	added   []corev1.EphemeralContainer // by Debug, ever
	patient bool                        // FailFast is over

	observed chan struct{} // closed when Run has first looked
	look     sync.Once
	volumes  *volume.Manager
	wanted   *corev1.Pod // pod with what Resize has asked for; nil for nothing
}

// New prepares a pod without touching the runtime. A pod that cannot be run
// (no name, no UID, no container, an annotation of the engine's own) is an error.
func New(options Options) (*Pod, error) {
	pod := options.Pod
	switch {
	case pod == nil:
		return nil, errors.New("pod: no pod given")
	case options.Runtime == nil || options.Images == nil:
		return nil, errors.New("pod: no runtime given")
	case pod.Name == "" || pod.Namespace == "" || pod.UID == "":
		return nil, fmt.Errorf("pod %q: name, namespace and uid are required", pod.Name)
	case len(pod.Spec.Containers) == 0:
		return nil, fmt.Errorf("pod %s: no containers", pod.Name)
	}
	if err := refuseInternal(pod.Annotations); err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	if _, err := options.hostname(); err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	if options.HostsFile == "" && len(pod.Spec.HostAliases) > 0 {
		return nil, fmt.Errorf("pod %s: hostAliases, and no place to write the hosts file", pod.Name)
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Pod{
		options: options,
		pod:     pod,
		log:     options.Logger.With("pod", pod.Namespace+"/"+pod.Name, "uid", string(pod.UID)),
		changed: make(chan struct{}), observed: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		volumes: volume.New(options.volumeDir(), options.objects()),
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

// ExitCode is the pod's as a command's: that of the first container, in the
// pod's order, initial ones first, that failed, else 0. How sidecars end does
// not matter. It is not known before the pod has ended.
func (p *Pod) ExitCode() (code int, known bool) {
	status := p.Status()
	if status.Phase != corev1.PodSucceeded && status.Phase != corev1.PodFailed {
		return 0, false
	}
	var list []corev1.ContainerStatus
	for i := range p.pod.Spec.InitContainers {
		if c := &p.pod.Spec.InitContainers[i]; initKind(c) == initial {
			list = append(list, statusOf(status.InitContainerStatuses, c.Name))
		}
	}
	for _, container := range append(list, status.ContainerStatuses...) {
		if end := container.State.Terminated; end != nil && end.ExitCode != 0 {
			return int(end.ExitCode), true
		}
	}
	return 0, true
}

// stopRequest asks Run to end the pod within grace.
type stopRequest struct {
	grace time.Duration
}

// Stop asks for the pod's end: TERM (or the image's stop signal) to every
// container, KILL after grace; a negative grace is the pod's own. It returns
// when Run has ended the pod or with ctx's error; the request stands. A later
// Stop can only shorten the grace. It needs a Run.
func (p *Pod) Stop(ctx context.Context, grace time.Duration) error {
	if grace < 0 {
		grace = p.grace()
	}
	p.mu.Lock()
	if p.stop == nil || grace < p.stop.grace {
		p.stop = &stopRequest{grace: grace}
	}
	p.mu.Unlock()
	p.Changed()
	for {
		status, changed := p.Watch()
		if status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("stop pod %s: %w", p.pod.Name, ctx.Err())
		}
	}
}

// Kill is Stop without grace.
func (p *Pod) Kill(ctx context.Context) error { return p.Stop(ctx, 0) }

func (p *Pod) grace() time.Duration {
	if seconds := p.pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// publish replaces the status and tells the watchers.
func (p *Pod) publish(status corev1.PodStatus, sandbox string, ids map[string]string, ending map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reflect.DeepEqual(status, p.status) && sandbox == p.sandbox && maps.Equal(ids, p.current) && maps.Equal(ending, p.ending) {
		return
	}
	p.status, p.sandbox, p.current, p.ending = status, sandbox, ids, ending
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Pod) stopping() *stopRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stop
}
