package series

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// mostSeries bounds the number of probe counters. Probes beyond it are not counted.
const mostSeries = 20_000

// durations are the buckets of probe durations, in seconds.
var durations = prometheus.DefBuckets

// results maps probe results to the kubelet's names.
var results = map[probe.Result]string{probe.Success: "successful", probe.Failure: "failed", probe.Unknown: "unknown"}

// probes counts and times the probes of containers.
type probes struct {
	found *prometheus.CounterVec
	took  *prometheus.HistogramVec

	mu    sync.Mutex
	known map[types.UID]*counters
	named map[types.NamespacedName]types.UID // the newest pod with a name, because the series of took have no UID
	n     int                                // the number of counters in known
}

// counters are the counters of a pod.
type counters struct {
	name types.NamespacedName
	all  map[counter]bool
}

// counter identifies one counter of a pod.
type counter struct {
	container string
	kind      probe.Kind
	result    probe.Result
}

func (p *probes) register(to *prometheus.Registry) {
	p.known, p.named = map[types.UID]*counters{}, map[types.NamespacedName]types.UID{}
	p.found = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "prober_probe_total", Help: "Cumulative number of a liveness, readiness or startup probe for a container by result.",
	}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"})
	p.took = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "prober_probe_duration_seconds", Help: "Duration in seconds for a probe response.", Buckets: durations,
	}, []string{"probe_type", "container", "pod", "namespace"})
	to.MustRegister(p.found, p.took)
}

// Probed counts a probe of a container. Like a kubelet, it records the duration unless the probe failed.
func (s *Series) Probed(pod *corev1.Pod, container string, kind probe.Kind, result probe.Result, took time.Duration) {
	p := &s.probes
	if result == probe.Warning {
		result = probe.Success
	}
	p.mu.Lock() // held while counting, so that the pod is not forgotten meanwhile
	defer p.mu.Unlock()
	if !p.reserve(pod, counter{container, kind, result}) {
		return
	}
	p.found.WithLabelValues(string(kind), results[result], container, pod.Name, pod.Namespace, string(pod.UID)).Inc()
	if result != probe.Failure {
		p.took.WithLabelValues(string(kind), container, pod.Name, pod.Namespace).Observe(took.Seconds())
	}
}

// reserve reports whether a counter exists or could be added. It is called with mu held.
func (p *probes) reserve(pod *corev1.Pod, c counter) bool {
	of := p.known[pod.UID]
	switch {
	case of != nil && of.all[c]:
		return true
	case p.n >= mostSeries:
		return false
	case of == nil:
		of = &counters{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, map[counter]bool{}}
		p.known[pod.UID] = of
	}
	of.all[c] = true
	p.named[of.name] = pod.UID
	p.n++
	return true
}

// has reports whether a pod has counters.
func (p *probes) has(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[uid] != nil
}

// forget drops a pod's counters.
func (p *probes) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.known[uid]
	if of == nil {
		return
	}
	newest := p.named[of.name] == uid
	for c := range of.all {
		p.found.DeleteLabelValues(string(c.kind), results[c.result], c.container, of.name.Name, of.name.Namespace, string(uid))
		if newest {
			p.took.DeleteLabelValues(string(c.kind), c.container, of.name.Name, of.name.Namespace)
		}
	}
	if newest {
		delete(p.named, of.name)
	}
	p.n -= len(of.all)
	delete(p.known, uid)
}
