// Package resources decides which pods the host has room for, and protects its memory, disk and process IDs. The
// packages below do the work. This one connects them.
package resources

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/events"
	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/door/node/pods"
	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/door/node/registration"
	"github.com/bulkhead-project/bulkhead/door/node/resources/admission"
	"github.com/bulkhead-project/bulkhead/door/node/resources/internal/eviction"
	"github.com/bulkhead-project/bulkhead/door/node/resources/internal/images"
	"github.com/bulkhead-project/bulkhead/door/node/resources/internal/preemption"
	"github.com/bulkhead-project/bulkhead/door/node/resources/internal/shutdown"
	"github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Threshold is the lower bound of a measured value of the host.
type Threshold = eviction.Threshold

// ParseThresholds parses thresholds as SIGNAL<QUANTITY or SIGNAL<PERCENT%.
func ParseThresholds(texts []string) ([]Threshold, error) { return eviction.Parse(texts) }

// Limits are the limits of the host's use.
type Limits struct {
	// Eviction are the thresholds at which pods are evicted.
	Eviction []Threshold
	// ImageGCHigh is the percentage of disk usage at which unused images are removed, until usage falls to ImageGCLow.
	// 0 disables the removal. Images younger than ImageMinAge are kept.
	ImageGCHigh, ImageGCLow int
	ImageMinAge             time.Duration
	// ShutdownGrace is how long pods may delay a shutdown of the host. ShutdownGraceCritical is the part of it for
	// critical pods. 0 means no delay.
	ShutdownGrace, ShutdownGraceCritical time.Duration
}

// Options configure Resources. All are required.
type Options struct {
	Limits
	Node    *registration.Node
	Pods    *pods.Pods
	Backend runtime.Backend
	// Data is a directory on the file system of images and of the pods' disks.
	Data string
	// Evicted is called with the signal of each eviction.
	Evicted func(signal string)
	Events  *events.Events
	Logger  *slog.Logger
}

// Resources are the resources of the host. It is safe for concurrent use.
type Resources struct {
	*admission.Admission
	*preemption.Manager
	o        Options
	images   *images.Collector
	eviction *eviction.Manager
	shutdown *shutdown.Manager
}

var _ pods.Admission = (*Resources)(nil)

// New returns the Resources, and describes them in the Node. The caller calls Run once, after it has opened the pods.
func New(ctx context.Context, o Options) *Resources {
	r := &Resources{o: o}
	changed := func() {
		o.Pods.RetryPending() // the host may continue after all
		o.Node.Measure()
	}
	disk := func() (host.Disk, error) { return host.DiskOf(o.Data) }
	r.images = images.New(images.Options{
		Images: o.Backend.Images, Runtime: o.Backend.Runtime, Disk: disk, High: o.ImageGCHigh, Low: o.ImageGCLow, MinAge: o.ImageMinAge,
		Warn: o.Node.Warn, Logger: o.Logger,
	})
	r.eviction = eviction.New(eviction.Options{
		Thresholds: o.Eviction, Measure: r.measure, Pods: r.evictable, Usage: r.usage, Evict: r.evict, Evicted: o.Evicted,
		Free:    func(ctx context.Context) error { return o.Pods.Free(ctx) },
		Reclaim: r.images.Reclaim, Changed: changed, Warn: o.Node.Warn, Logger: o.Logger,
	})
	r.shutdown = shutdown.New(shutdown.Options{
		Period: o.ShutdownGrace, Critical: o.ShutdownGraceCritical, IsCritical: eviction.Critical, End: r.terminate,
		Pods:    func() []*corev1.Pod { return o.Pods.Active() },
		Changed: changed, Warn: o.Node.Warn, Logger: o.Logger,
	})
	r.Admission = admission.New(o.Node.Last, o.Backend.Refuse, r.refuse)
	r.Manager = preemption.New(preemption.Options{
		Pods: r.evictable, Lacks: r.Lacks, Requests: admission.Requests, End: r.preempt, Logger: o.Logger,
		Gone: func(uid types.UID) bool {
			p := o.Pods.Get(uid)
			return p != nil && (p.HasEnded() || p.Eviction() != nil)
		},
	})
	o.Node.Describe(ctx, registration.Figures{
		Withheld: func(all corev1.ResourceList) corev1.ResourceList { return eviction.Withheld(o.Eviction, all) },
		Pressure: r.eviction.Pressure, Images: r.images.Largest, Ending: r.shutdown.Ending,
	})
	return r
}

// Run protects the host until ctx ends.
func (r *Resources) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { r.eviction.Run(ctx) })
	if r.o.ImageGCHigh > 0 {
		all.Go(func() { r.images.Run(ctx) })
	}
	if r.o.ShutdownGrace > 0 {
		all.Go(func() { r.shutdown.Run(ctx) })
	}
}

// refuse returns why the node does not accept a pod in the host's present state. An empty reason means that it does.
func (r *Resources) refuse(pod *corev1.Pod) (reason, message string) {
	if _, ending := r.shutdown.Ending(); ending {
		return shutdown.RejectReason, shutdown.RejectMessage
	}
	return r.eviction.Admit(pod)
}

// preempt ends a pod to make room for a critical one.
func (r *Resources) preempt(ctx context.Context, pod *corev1.Pod) error {
	r.o.Events.Recorder.Event(pod, corev1.EventTypeWarning, preemption.Reason, preemption.Message)
	why := manager.Eviction{Reason: preemption.Reason, Message: preemption.Message}
	if err := r.o.Pods.Evict(ctx, pod.UID, 0, why); err != nil {
		return err
	}
	r.Release(pod.UID)
	return nil
}

// terminate ends a pod before the host goes down and reports its status to the API server.
func (r *Resources) terminate(ctx context.Context, pod *corev1.Pod, grace int64) error {
	why := manager.Eviction{Reason: shutdown.Reason, Message: shutdown.Message, Passing: control.Static(pod.UID)}
	if err := r.o.Pods.Evict(ctx, pod.UID, grace, why); err != nil {
		return err
	}
	return r.o.Pods.Report(ctx, pod.UID)
}

// evict ends a pod that the host cannot keep or that has exceeded a limit of its own.
func (r *Resources) evict(ctx context.Context, pod *corev1.Pod, own bool, message string) error {
	r.o.Events.Recorder.Event(pod, corev1.EventTypeWarning, "Evicted", message)
	return r.o.Pods.Evict(ctx, pod.UID, 0, manager.Eviction{Reason: "Evicted", Message: message, Own: own})
}

// evictable returns the running pods that the node is not already ending.
func (r *Resources) evictable() []*corev1.Pod { return r.o.Pods.Unevicted() }

// measure returns the host's free memory, process IDs and disk space.
func (r *Resources) measure() (h eviction.Host, err error) {
	if h.Memory, err = host.Memory(); err != nil {
		return h, err
	}
	if h.PIDs, err = host.PIDs(); err != nil {
		return h, err
	}
	h.Disk, err = host.DiskOf(r.o.Data)
	return h, err
}

// usage returns the resource usage of each pod.
func (r *Resources) usage(ctx context.Context) (map[types.UID]eviction.Usage, error) {
	usages, err := r.o.Pods.Usages(ctx)
	if err != nil {
		return nil, err
	}
	out := map[types.UID]eviction.Usage{}
	backend := r.o.Backend
	for _, p := range r.o.Pods.Pods() {
		one, answered := usages[p.UID()]
		u := eviction.Usage{
			Memory: one.Stats.GetLinux().GetMemory().GetWorkingSetBytes().GetValue(), Silent: !answered && p.Sandbox() != "",
			Processes: one.Stats.GetLinux().GetProcess().GetProcessCount().GetValue(),
			Disk:      one.Ephemeral().Bytes, Written: map[string]uint64{}, Volumes: map[string]uint64{},
		}
		for c := range podspec.All(&p.Original().Spec) {
			u.Written[c.Name] = one.Container(c.Name).Bytes
		}
		for _, v := range one.Volumes {
			u.Volumes[v.Name] = v.Bytes
		}
		if backend.HeldMemory != nil && p.Sandbox() != "" {
			u.Held, _ = backend.HeldMemory(p.Sandbox())
		}
		if backend.HeldDisk != nil && p.Sandbox() != "" {
			u.HeldDisk = backend.HeldDisk(p.Sandbox()) + int64(one.AllLogs().Bytes)
		}
		out[p.UID()] = u
	}
	return out, nil
}
