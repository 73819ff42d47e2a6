package series

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/pod"
)

// startBuckets are the kubelet's, in seconds.
var startBuckets = []float64{
	0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
}

// starts times the starts of pods.
type starts struct {
	took, sli prometheus.Histogram

	mu    sync.Mutex
	begun map[types.UID]*begun // pods with containers that have not started
}

// begun is a pod that is being started.
type begun struct {
	pod  *corev1.Pod
	seen time.Time
	runs bool // one of its containers has started
	// pulling is when the first image pull started, pulled when the last one ended.
	pulling, pulled time.Time
}

func (s *starts) register(to *prometheus.Registry) {
	s.begun = map[types.UID]*begun{}
	s.took = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kubelet_pod_start_duration_seconds",
		Help:    "Duration in seconds from the node seeing a pod for the first time to the pod starting to run",
		Buckets: startBuckets,
	})
	s.sli = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "kubelet_pod_start_sli_duration_seconds",
		Help: "Duration in seconds from a pod's creation until all its containers have started, without the time to pull its images; " +
			"of pods without init containers and without claims",
		Buckets: startBuckets,
	})
	to.MustRegister(s.took, s.sli)
}

// Seen starts timing a new pod. Only its first call for a pod counts.
func (s *Series) Seen(p *corev1.Pod) {
	s.starts.mu.Lock()
	defer s.starts.mu.Unlock()
	if s.starts.begun[p.UID] == nil {
		s.starts.begun[p.UID] = &begun{pod: p, seen: time.Now()}
	}
}

// Event records the image pulls of a pod.
func (s *Series) Event(p *corev1.Pod, e pod.Event) {
	s.starts.mu.Lock()
	defer s.starts.mu.Unlock()
	b := s.starts.begun[p.UID]
	switch {
	case b == nil:
	case e.Reason == "Pulling" && b.pulling.IsZero():
		b.pulling = e.Time
	case e.Reason == "Pulled" && !b.pulling.IsZero():
		b.pulled = e.Time
	}
}

// Changed records a change of a pod's status.
func (s *Series) Changed(p *corev1.Pod, status func() corev1.PodStatus) {
	if !s.starts.waits(p.UID) && !s.probes.has(p.UID) {
		return
	}
	now := status()
	s.starts.changed(p.UID, &now)
	if now.Phase == corev1.PodFailed || now.Phase == corev1.PodSucceeded {
		s.probes.forget(p.UID)
	}
}

func (s *starts) waits(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun[uid] != nil
}

func (s *starts) changed(uid types.UID, status *corev1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, now := s.begun[uid], time.Now()
	switch {
	case b == nil:
		return
	case status.Phase == corev1.PodFailed:
		delete(s.begun, uid) // it may have run without being seen
		return
	case status.Phase != corev1.PodRunning && status.Phase != corev1.PodSucceeded:
		return
	}
	if !b.runs {
		b.runs = true
		s.took.Observe(now.Sub(b.seen).Seconds())
	}
	if !slices.ContainsFunc(status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Waiting != nil }) {
		delete(s.begun, uid)
		if b.counts() {
			s.sli.Observe(max(0, now.Sub(b.pod.CreationTimestamp.Time)-b.pulled.Sub(b.pulling)).Seconds())
		}
	}
}

// counts reports whether the start counts for the service level indicator.
func (b *begun) counts() bool {
	for i := range b.pod.Spec.Volumes {
		if v := &b.pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return false
		}
	}
	return len(b.pod.Spec.InitContainers) == 0 && !b.pod.CreationTimestamp.IsZero() && !b.pulled.Before(b.pulling)
}

func (s *starts) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.begun, uid)
}
