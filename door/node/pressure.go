package node

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/door/node/resources/admission"
	"github.com/bulkhead-project/bulkhead/door/node/resources/eviction"
	"github.com/bulkhead-project/bulkhead/door/node/resources/images"
	"github.com/bulkhead-project/bulkhead/door/node/resources/preemption"
	"github.com/bulkhead-project/bulkhead/door/node/resources/shutdown"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// guard creates the components that protect the host's memory, disk and process IDs.
func (n *node) guard() {
	warn := func(reason, message string) {
		if n.keeper == nil {
			return // there is no API server; the message is in the log
		}
		if node := n.keeper.Node(); node != nil {
			n.events.Recorder.Event(node, corev1.EventTypeWarning, reason, message)
		}
	}
	changed := func() {
		n.static.retryPending() // the host may continue after all
		if n.keeper != nil {
			n.keeper.Measure()
		}
	}
	disk := func() (host.Disk, error) { return host.DiskOf(n.o.Roots.Data) }
	backend := n.runtime.Backend()
	n.images = images.New(images.Options{
		Images: backend.Images, Runtime: backend.Runtime, Disk: disk, High: n.o.ImageGCHigh, Low: n.o.ImageGCLow,
		MinAge: n.o.ImageMinAge, Warn: warn, Logger: n.o.Logger,
	})
	n.eviction = eviction.New(eviction.Options{
		Thresholds: n.o.Eviction, Measure: n.measure, Pods: n.evictable, Usage: n.usage, Evict: n.evict, Reclaim: n.images.Reclaim,
		Evicted: func(signal string) { n.series.Evicted(signal) },
		Free:    func(ctx context.Context) error { return n.runner.Free(ctx) },
		Changed: changed, Warn: warn, Logger: n.o.Logger,
	})
	n.shutdown = shutdown.New(shutdown.Options{
		Period: n.o.ShutdownGrace, Critical: n.o.ShutdownGraceCritical, Pods: n.active, IsCritical: eviction.Critical, End: n.terminate,
		Changed: changed, Warn: warn, Logger: n.o.Logger,
	})
}

// preempting creates the manager that ends pods to make room for critical ones.
func (n *node) preempting(admits *admission.Admission) *preemption.Manager {
	return preemption.New(preemption.Options{
		Pods: n.evictable, Lacks: admits.Lacks, Requests: admission.Requests, Logger: n.o.Logger,
		Gone: func(uid types.UID) bool {
			p := n.runner.Get(uid)
			return p != nil && (p.HasEnded() || p.Eviction() != nil)
		},
		End: func(ctx context.Context, pod *corev1.Pod) error {
			n.events.Recorder.Event(pod, corev1.EventTypeWarning, preemption.Reason, preemption.Message)
			why := manager.Eviction{Reason: preemption.Reason, Message: preemption.Message}
			if err := n.runner.Evict(ctx, pod.UID, 0, why); err != nil {
				return err
			}
			admits.Release(pod.UID)
			return nil
		},
	})
}

// startLoops runs the components that guard created until ctx ends.
func (n *node) startLoops(ctx context.Context, all *sync.WaitGroup) {
	all.Go(func() { n.eviction.Run(ctx) })
	if n.o.ImageGCHigh > 0 {
		all.Go(func() { n.images.Run(ctx) })
	}
	if n.o.ShutdownGrace > 0 {
		all.Go(func() { n.shutdown.Run(ctx) })
	}
}

// admits returns why the node does not accept a pod in the host's present state. An empty reason means that it does.
func (n *node) admits(pod *corev1.Pod) (reason, message string) {
	if _, ending := n.shutdown.Ending(); ending {
		return shutdown.RejectReason, shutdown.RejectMessage
	}
	return n.eviction.Admit(pod)
}

// terminate ends a pod before the host goes down and reports its status to the API server.
func (n *node) terminate(ctx context.Context, pod *corev1.Pod, grace int64) error {
	if err := n.runner.Evict(ctx, pod.UID, grace, manager.Eviction{
		Reason: shutdown.Reason, Message: shutdown.Message, Passing: control.Static(pod.UID),
	}); err != nil {
		return err
	}
	if n.cache == nil {
		return nil // without an API server
	}
	now := n.cache.Get(pod.UID)
	if now == nil {
		return nil
	}
	return n.status.Report(ctx, now)
}

// measure returns the host's free memory, process IDs and disk space.
func (n *node) measure() (h eviction.Host, err error) {
	if h.Memory, err = host.Memory(); err != nil {
		return h, err
	}
	if h.PIDs, err = host.PIDs(); err != nil {
		return h, err
	}
	h.Disk, err = host.DiskOf(n.o.Roots.Data)
	return h, err
}

// active returns the pods that run, including the pods that are being ended.
func (n *node) active() []*corev1.Pod { return n.runner.Active() }

// evictable returns the running pods that the node is not already ending.
func (n *node) evictable() []*corev1.Pod { return n.runner.Unevicted() }

// usage returns the resource usage of each pod.
func (n *node) usage(ctx context.Context) (map[types.UID]eviction.Usage, error) {
	usages, err := n.runner.Usages(ctx)
	if err != nil {
		return nil, err
	}
	out := map[types.UID]eviction.Usage{}
	backend := n.runtime.Backend()
	for _, p := range n.runner.Pods() {
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

// evict ends a pod that the host cannot keep or that has exceeded a limit of its own.
func (n *node) evict(ctx context.Context, pod *corev1.Pod, own bool, message string) error {
	n.events.Recorder.Event(pod, corev1.EventTypeWarning, "Evicted", message)
	return n.runner.Evict(ctx, pod.UID, 0, manager.Eviction{Reason: "Evicted", Message: message, Own: own})
}
