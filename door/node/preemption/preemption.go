// Package preemption makes room on a node for pods that a cluster or the node cannot do without: it ends others of which they
// have what the critical one lacks, as few as will do, those of the least priority first.
package preemption

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/eviction"
)

// Reason and Message are those of a pod that is ended so, in a kubelet's words.
const (
	Reason  = "Preempting"
	Message = "Preempted in order to admit critical pod"
)

// outOf begins the reasons of rejections for want of a resource.
const outOf = "OutOf"

// endTimeout bounds the end of one pod.
const endTimeout = time.Minute

// Options are a Manager's. All but Logger are required.
type Options struct {
	// Pods are those that run and are not ending for a reason of the node's.
	Pods func() []*corev1.Pod
	// Gone tells whether a pod has ended, or is being ended for a reason of the node's: what it has will be free.
	Gone func(types.UID) bool
	// Lacks is what a pod lacks of the node's resources when those are free that are given to pods of which gone is true.
	Lacks func(pod *corev1.Pod, gone func(types.UID) bool) corev1.ResourceList
	// Requests are what counts for a pod.
	Requests func(*corev1.Pod) corev1.ResourceList
	// End ends a pod at once, with the reason Preempting, and returns when it has ended and has given back what it had.
	End    func(context.Context, *corev1.Pod) error
	Logger *slog.Logger
}

// Manager makes room. Its methods may be called at once.
type Manager struct {
	o Options

	mu     sync.Mutex
	chosen map[types.UID]bool // pods whose end is under way here: none of them is chosen twice, and what they have will be free
}

// New makes a manager.
func New(o Options) *Manager {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Manager{o: o, chosen: map[types.UID]bool{}}
}

// Preempt chooses pods that are ended in the place of one that was rejected for that reason, and tells whether it is to be tried
// again: there will be room for it. The caller calls end, beside its other work: it ends them, and returns when they have ended,
// or are given up. A nil end is that others' ends, under way already, will do. None is ended where that does not help, and none
// for a pod that is not critical.
func (m *Manager) Preempt(pod *corev1.Pod, reason string) (end func(context.Context), again bool) {
	if !strings.HasPrefix(reason, outOf) || !eviction.Critical(pod) {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := func(uid types.UID) bool { return m.chosen[uid] || m.o.Gone(uid) }
	others := slices.DeleteFunc(m.o.Pods(), func(p *corev1.Pod) bool { return m.chosen[p.UID] })
	victims, enough := choose(m.o.Lacks(pod, gone), others, m.o.Requests)
	if !enough || len(victims) == 0 {
		return nil, enough
	}
	for _, v := range victims {
		m.o.Logger.Warn("a pod is ended in the place of a critical one", "pod", v.Namespace+"/"+v.Name, "critical", pod.Namespace+"/"+pod.Name)
		m.chosen[v.UID] = true
	}
	return func(ctx context.Context) {
		var all sync.WaitGroup
		for _, v := range victims {
			all.Go(func() { m.end(ctx, v) })
		}
		all.Wait()
	}, true
}

func (m *Manager) end(ctx context.Context, pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := m.o.End(ctx, pod); err != nil {
		m.o.Logger.Warn("a pod that makes room has not ended yet", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.chosen, pod.UID)
}
