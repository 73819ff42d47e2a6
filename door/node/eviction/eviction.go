// Package eviction keeps a machine from running out of memory, disk and processes: it measures them, tells
// whether the node is under pressure, takes no pods then that would make it worse, frees disk of what nobody
// uses, and ends pods, one at a time, in a kubelet's order. A pod that writes more than its limit of ephemeral storage is
// ended as well.
package eviction

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/machine"
	"github.com/bulkhead-project/bulkhead/door/node/pods"
)

// Host is what a machine has, and has left. What is not measured is zero.
type Host struct {
	Memory, PIDs machine.Usage
	Disk         machine.Disk
}

// Usage is what a pod uses of its machine.
type Usage struct {
	// Memory is what the pod's guest says that it uses, in bytes, which may be anything.
	Memory uint64
	// Held is what of the host's memory ends with the pod, as the host counts it, with all that a VM takes, and HeldDisk the same of
	// its disk, with the pod's logs; 0 is that the host does not count.
	Held, HeldDisk int64
	// Silent: the pod's guest does not say what it uses.
	Silent    bool
	Processes uint64
	// Disk is all that the pod has of ephemeral storage, in bytes: layers and logs of containers, and emptyDirs on the disk, as its
	// guest says.
	Disk uint64
	// Written is what each of its containers has written to its layer and its logs, by name, in bytes, and Volumes what lies in its
	// volumes.
	Written, Volumes map[string]uint64
}

// Options are a Manager's. All but Every, Transition and Logger are required.
type Options struct {
	Thresholds []Threshold
	Measure    func() (Host, error)
	// Pods are those that run, Usage is what they use. One that is not in Usage may use all that it can.
	Pods  func() []*corev1.Pod
	Usage func(ctx context.Context) (map[types.UID]Usage, error)
	// Evict ends a pod at once, with the reason Evicted, and returns when it has ended. own says that the pod has broken
	// a limit of its own.
	Evict func(ctx context.Context, pod *corev1.Pod, own bool, message string) error
	// Evicted, if set, is called with each eviction's signal: that of a threshold, or of a limit.
	Evicted func(signal string)
	// Free frees the disk that pods that have ended hold, those that were evicted among them.
	Free func(ctx context.Context) error
	// Reclaim frees disk of what nobody uses.
	Reclaim func(ctx context.Context) error
	// Changed is called when the node's conditions have changed; it must not block.
	Changed func()
	// Warn tells of the node.
	Warn func(reason, message string)
	// Every is how often the machine is measured, 10 s if 0; Transition is how long a condition stays after
	// its cause, 5 min if 0.
	Every, Transition time.Duration
	Logger            *slog.Logger
}

// Manager evicts. Its methods may be called at once; its owner calls Run once.
type Manager struct {
	o       Options
	unfreed int // times in a row that Free failed; Run's own

	mu   sync.Mutex
	last map[corev1.NodeConditionType]time.Time // when the cause of a condition was last seen
	told string                                 // the conditions as Changed was called last
}

const (
	every      = 10 * time.Second
	transition = 5 * time.Minute
	// evictTimeout bounds the end of one pod.
	evictTimeout = time.Minute
	// patience is how often in a row Free may fail before a pod is evicted nevertheless.
	patience = 6
)

// New makes a manager.
func New(o Options) *Manager {
	if o.Every == 0 {
		o.Every = every
	}
	if o.Transition == 0 {
		o.Transition = transition
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Manager{o: o, last: map[corev1.NodeConditionType]time.Time{}, told: fmt.Sprint([]corev1.NodeConditionType(nil))}
}

// Run measures until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := m.look(ctx); err != nil && ctx.Err() == nil {
			m.o.Logger.Warn("checking for pods to evict failed", "error", err)
		}
		timer.Reset(m.o.Every)
	}
}

// Pressure tells whether the node is under pressure of that kind.
func (m *Manager) Pressure(kind corev1.NodeConditionType) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, was := m.last[kind]
	return was && time.Since(at) < m.o.Transition
}

// under are the kinds of pressure that the node is under.
func (m *Manager) under() (out []corev1.NodeConditionType) {
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		if m.Pressure(kind) {
			out = append(out, kind)
		}
	}
	return out
}

// look measures once, and ends one pod at most for each reason.
func (m *Manager) look(ctx context.Context) error {
	host, err := m.o.Measure()
	if err != nil {
		return err
	}
	low := met(m.o.Thresholds, host)
	m.note(low)
	pods := m.o.Pods()
	if len(low) == 0 && !limited(pods) {
		return nil
	}
	usage, err := m.o.Usage(ctx)
	if err != nil {
		return err
	}
	if m.overLimit(ctx, pods, usage) || len(low) == 0 {
		return nil
	}
	first := low[0]
	m.o.Warn("EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", of[first.Signal].resource))
	if of[first.Signal].condition == corev1.NodeDiskPressure {
		if err := m.free(ctx); err != nil {
			return err
		}
		if err := m.o.Reclaim(ctx); err != nil {
			m.o.Logger.Warn("removing unused images failed", "error", err)
		}
		if host, err = m.o.Measure(); err != nil {
			return err
		}
		if low = met(m.o.Thresholds, host); len(low) == 0 {
			return nil
		}
		first = low[0]
	}
	m.evictOne(ctx, first, host, pods, usage)
	return nil
}

// note keeps what is low, and tells whether the node's conditions are other ones.
func (m *Manager) note(low []Threshold) {
	m.mu.Lock()
	for _, t := range low {
		m.last[of[t.Signal].condition] = time.Now()
	}
	m.mu.Unlock()
	now := fmt.Sprint(m.under())
	m.mu.Lock()
	changed := now != m.told
	m.told = now
	m.mu.Unlock()
	if changed {
		m.o.Changed()
	}
}

// evictOne ends the first pod in their order, and no other one, whether it has ended in time or not: it is being ended.
// A critical one is never ended, as by a kubelet.
func (m *Manager) evictOne(ctx context.Context, low Threshold, host Host, pods []*corev1.Pod, usage map[types.UID]Usage) {
	rank(low.Signal, pods, usage)
	for _, pod := range pods {
		if ctx.Err() != nil {
			return
		}
		if !Critical(pod) {
			m.evict(ctx, pod, low.Signal, message(low, host, pod, usage[pod.UID]))
			return
		}
	}
	m.o.Logger.Warn("the node is under pressure, but has no pod to evict", "signal", string(low.Signal))
}

// evict ends one pod.
func (m *Manager) evict(ctx context.Context, pod *corev1.Pod, why Signal, message string) {
	if m.o.Evicted != nil {
		m.o.Evicted(string(why))
	}
	m.o.Logger.Warn("evicting a pod", "pod", pod.Namespace+"/"+pod.Name, "why", message)
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	_, threshold := of[why]
	if err := m.o.Evict(ctx, pod, !threshold, message); err != nil {
		m.o.Logger.Warn("an evicted pod has not ended yet", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
}

// systemCritical is the least priority of pods that a cluster cannot do without.
const systemCritical = 2_000_000_000

// Critical tells whether a cluster or its node cannot do without a pod: by its priority, or as it is a file's. A
// file's is told by its UID: annotations are for everybody to write.
func Critical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical || pods.Static(pod.UID)
}
