// Package eviction keeps a host from running out of memory, disk and processes. It measures them and reports whether
// the node is under pressure. Under pressure it rejects pods that would add to it, frees unused disk, and evicts pods
// one at a time in a kubelet's order. It also evicts pods that exceed their limits of ephemeral storage.
package eviction

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/internal/retry"
)

// Host is the capacity of a host and its free part. Values that were not measured are zero.
type Host struct {
	Memory, PIDs host.Usage
	Disk         host.Disk
}

// Usage is a pod's usage of the host.
type Usage struct {
	// Memory is the usage in bytes as the pod's guest reports it. The value is untrusted.
	Memory uint64
	// Held is the host memory that the pod's end frees, in bytes, including the VM itself. HeldDisk is the same for its
	// disk, with the pod's logs. The host measures both; 0 means not measured.
	Held, HeldDisk int64
	// Silent is set if the pod's guest does not report its usage.
	Silent    bool
	Processes uint64
	// Disk is the pod's ephemeral storage in bytes, as its guest reports it: layers and logs of containers, and
	// emptyDirs on the disk.
	Disk uint64
	// Written is the size of each container's layer and logs in bytes, by the container's name. Volumes is the size of
	// each volume.
	Written, Volumes map[string]uint64
}

// Options configure a Manager. All but Every, Transition and Logger are required.
type Options struct {
	Thresholds []Threshold
	Measure    func() (Host, error)
	// Pods returns the running pods. Usage returns their usage. A pod missing from Usage counts with the most that it
	// may use.
	Pods  func() []*corev1.Pod
	Usage func(ctx context.Context) (map[types.UID]Usage, error)
	// Evict ends a pod immediately with the reason Evicted and waits for its end. own is set if the pod has exceeded a
	// limit of its own.
	Evict func(ctx context.Context, pod *corev1.Pod, own bool, message string) error
	// Evicted, if set, is called with the signal of each eviction: a threshold's or a limit's.
	Evicted func(signal string)
	// Free frees the disk of terminated pods, including evicted ones.
	Free func(ctx context.Context) error
	// Reclaim removes unused data from the disk.
	Reclaim func(ctx context.Context) error
	// Changed is called when the node's conditions have changed. It must not block.
	Changed func()
	// Warn records an event of the node.
	Warn func(reason, message string)
	// Every is the interval between measurements; 0 means 10 s. Transition is how long a condition outlasts its cause;
	// 0 means 5 min.
	Every, Transition time.Duration
	Logger            *slog.Logger
}

// Manager evicts pods. It is safe for concurrent use. Its owner calls Run once.
type Manager struct {
	o       Options
	unfreed int // consecutive failures of Free; used only by Run

	mu       sync.Mutex
	last     map[corev1.NodeConditionType]time.Time // last time of each condition's cause
	reported string                                 // the conditions at the last call of Changed
}

const (
	every      = 10 * time.Second
	transition = 5 * time.Minute
	// evictTimeout limits the end of one pod.
	evictTimeout = time.Minute
	// patience is how many times in a row Free may fail before a pod is evicted nevertheless.
	patience = 6
)

// New returns a manager.
func New(o Options) *Manager {
	if o.Every == 0 {
		o.Every = every
	}
	if o.Transition == 0 {
		o.Transition = transition
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Manager{o: o, last: map[corev1.NodeConditionType]time.Time{}, reported: fmt.Sprint([]corev1.NodeConditionType(nil))}
}

// Run measures until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	retry.Pauses{First: m.o.Every, Last: m.o.Every}.Loop(ctx, m.o.Every, nil, func() error { return m.check(ctx) }, func(err error) {
		m.o.Logger.Warn("checking for pods to evict failed", "error", err)
	})
}

// Pressure reports whether the node has this condition.
func (m *Manager) Pressure(kind corev1.NodeConditionType) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, was := m.last[kind]
	return was && time.Since(at) < m.o.Transition
}

// conditions returns the node's conditions of pressure.
func (m *Manager) conditions() (out []corev1.NodeConditionType) {
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		if m.Pressure(kind) {
			out = append(out, kind)
		}
	}
	return out
}

// check measures once and evicts at most one pod because of pressure.
func (m *Manager) check(ctx context.Context) error {
	host, err := m.o.Measure()
	if err != nil {
		return err
	}
	low := crossed(m.o.Thresholds, host)
	m.recordPressure(low)
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
		if low = crossed(m.o.Thresholds, host); len(low) == 0 {
			return nil
		}
		first = low[0]
	}
	m.evictOne(ctx, first, host, pods, usage)
	return nil
}

// recordPressure records the causes of conditions and calls Changed if the conditions have changed.
func (m *Manager) recordPressure(low []Threshold) {
	m.mu.Lock()
	for _, t := range low {
		m.last[of[t.Signal].condition] = time.Now()
	}
	m.mu.Unlock()
	now := fmt.Sprint(m.conditions())
	m.mu.Lock()
	changed := now != m.reported
	m.reported = now
	m.mu.Unlock()
	if changed {
		m.o.Changed()
	}
}

// evictOne evicts the first pod in the order of eviction, and no other one even if that pod does not end in time.
// Critical pods are never evicted, as with a kubelet.
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

// evict evicts one pod.
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

// systemCritical is the lowest priority of critical pods.
const systemCritical = 2_000_000_000

// Critical reports whether the cluster or the node needs a pod: it has a critical priority or is a static pod. The UID
// identifies a static pod, because any user can write annotations.
func Critical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical || control.Static(pod.UID)
}
