// Package series is what a node counts and tells of itself by a kubelet's names, as Prometheus reads it: its pods and
// containers, how long they take to start, their probes, evictions, certificates, and the requests to its API.
package series

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/usage"
)

// Options are a Series'. Node, Statuses and Claims are required.
type Options struct {
	// Node is the node's name.
	Node string
	// Statuses are those of the node's pods.
	Statuses func() map[types.UID]corev1.PodStatus
	// Claims are the volumes of claims that the node's pods have.
	Claims func() map[types.NamespacedName]usage.Volume
	// More is what else /metrics tells, of the runtime and of this process; nil is nothing, and the process is told of here.
	More prometheus.Gatherer
	// Client and Serving are the node's certificates; of each nil is one that the node does not renew.
	Client, Serving Certificate
}

// Certificate is one that a node renews. Its methods may be called at once.
type Certificate interface {
	// Expires is when the certificate does; zero is that there is none.
	Expires() time.Time
	// RenewFailures is how often it could not be renewed.
	RenewFailures() uint64
}

// Series counts. Its methods may be called at once.
type Series struct {
	own, probed *prometheus.Registry
	more        prometheus.Gatherer

	starts    starts
	probes    probes
	requests  requests
	evictions *prometheus.CounterVec
}

// New counts from nothing.
func New(o Options) *Series {
	s := &Series{own: prometheus.NewRegistry(), probed: prometheus.NewRegistry(), more: o.More}
	name := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubelet_node_name", Help: "The node's name. The count is always 1.", ConstLabels: prometheus.Labels{"node": o.Node},
	})
	name.Set(1)
	s.evictions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_evictions", Help: "Cumulative number of pod evictions by eviction signal",
	}, []string{"eviction_signal"})
	s.own.MustRegister(name, s.evictions, possessions{o.Statuses}, claims{o.Claims})
	s.starts.register(s.own)
	s.requests.register(s.own)
	s.probes.register(s.probed)
	register(s.own, "client", o.Client)
	register(s.own, "server", o.Serving)
	if o.More == nil {
		s.own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	return s
}

// Register adds the paths to a server's.
func (s *Series) Register(mux *http.ServeMux) {
	all := prometheus.Gatherers{s.own}
	if s.more != nil {
		all = append(all, s.more)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	mux.Handle("GET /metrics/probes", promhttp.HandlerFor(s.probed, promhttp.HandlerOpts{}))
}

// Evicted counts an eviction, for want of what the signal measures or by a limit of its own.
func (s *Series) Evicted(signal string) { s.evictions.WithLabelValues(signal).Inc() }

// Removed forgets a pod of which the machine has nothing any more.
func (s *Series) Removed(uid types.UID) {
	s.starts.forget(uid)
	s.probes.forget(uid)
}
