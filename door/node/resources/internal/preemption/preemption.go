// Package preemption makes room on a node for critical pods. It ends as few other pods as possible, in order of
// priority, if they hold the resources that the critical pod lacks.
package preemption

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/resources/internal/eviction"
)

// Reason and Message are set on preempted pods. They are the kubelet's.
const (
	Reason  = "Preempting"
	Message = "Preempted in order to admit critical pod"
)

// outOf is the prefix of rejections for a lack of a resource.
const outOf = "OutOf"

// endTimeout bounds the end of one pod.
const endTimeout = time.Minute

// Options configures a Manager. All fields but Logger are required.
type Options struct {
	// Pods returns the running pods that the node is not ending.
	Pods func() []*corev1.Pod
	// Gone reports whether a pod has ended, or the node is ending it. Its resources will be free.
	Gone func(types.UID) bool
	// Lacks returns the resources that the node lacks for a pod, if it counts the resources of gone pods as free.
	Lacks func(pod *corev1.Pod, gone func(types.UID) bool) corev1.ResourceList
	// Requests returns the resources that count for a pod.
	Requests func(*corev1.Pod) corev1.ResourceList
	// End ends a pod at once with the reason Preempting. It returns when the pod has ended and has released its
	// resources.
	End    func(context.Context, *corev1.Pod) error
	Logger *slog.Logger
}

// Manager makes room for critical pods. It is safe for concurrent use.
type Manager struct {
	o Options

	mu     sync.Mutex
	chosen map[types.UID]bool // pods that are being ended here: not chosen twice, and their resources will be free
}

// New returns a Manager.
func New(o Options) *Manager {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Manager{o: o, chosen: map[types.UID]bool{}}
}

// Preempt chooses pods to end so that a rejected critical pod fits, and reports whether the pod should be retried. The
// caller must call end beside its other work: it ends the chosen pods, and returns when they have ended or timed out. A
// nil end with again = true means that pods already ending will free enough. Preempt chooses none if that would not
// free enough, or if the pod is not critical.
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
		m.o.Logger.Warn("ending a pod to make room for a critical one", "pod", v.Namespace+"/"+v.Name, "critical", pod.Namespace+"/"+pod.Name)
		m.chosen[v.UID] = true
	}
	return func(ctx context.Context) {
		var all sync.WaitGroup
		for _, v := range victims {
			all.Go(func() { m.endPod(ctx, v) })
		}
		all.Wait()
	}, true
}

func (m *Manager) endPod(ctx context.Context, pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := m.o.End(ctx, pod); err != nil {
		m.o.Logger.Warn("a preempted pod has not ended yet", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.chosen, pod.UID)
}
