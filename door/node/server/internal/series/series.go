// Package series provides the metrics of a node under the kubelet's names, for Prometheus: its pods and containers,
// their start times, their probes, evictions, certificates, and the requests to its API.
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

// Options configures Series. Node, Statuses and Claims are required.
type Options struct {
	// Node is the node's name.
	Node string
	// Statuses returns the statuses of the node's pods.
	Statuses func() map[types.UID]corev1.PodStatus
	// Claims returns the usage of the claim volumes of the node's pods.
	Claims func() map[types.NamespacedName]usage.Volume
	// More gathers further metrics of the runtime and of this process for /metrics. If it is nil, Series adds the metrics
	// of this process.
	More prometheus.Gatherer
	// Client and Serving are the node's certificates. Each is nil if the node does not renew it.
	Client, Serving Certificate
}

// Certificate is a certificate that the node renews. It is safe for concurrent use.
type Certificate interface {
	// Expires returns the expiry time, or the zero time if there is no certificate.
	Expires() time.Time
	// RenewFailures returns the number of failed renewals.
	RenewFailures() uint64
}

// Series holds the metrics. It is safe for concurrent use.
type Series struct {
	own, probed *prometheus.Registry
	more        prometheus.Gatherer

	starts    starts
	probes    probes
	requests  requests
	evictions *prometheus.CounterVec
}

// New returns Series with all counters at zero.
func New(o Options) *Series {
	s := &Series{own: prometheus.NewRegistry(), probed: prometheus.NewRegistry(), more: o.More}
	name := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubelet_node_name", Help: "The node's name. The count is always 1.", ConstLabels: prometheus.Labels{"node": o.Node},
	})
	name.Set(1)
	s.evictions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_evictions", Help: "Cumulative number of pod evictions by eviction signal",
	}, []string{"eviction_signal"})
	s.own.MustRegister(name, s.evictions, podCollector{o.Statuses}, claims{o.Claims})
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

// Register adds the metrics paths to a server.
func (s *Series) Register(mux *http.ServeMux) {
	all := prometheus.Gatherers{s.own}
	if s.more != nil {
		all = append(all, s.more)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	mux.Handle("GET /metrics/probes", promhttp.HandlerFor(s.probed, promhttp.HandlerOpts{}))
}

// Evicted counts an eviction, by the signal that was short or by the pod's own limit.
func (s *Series) Evicted(signal string) { s.evictions.WithLabelValues(signal).Inc() }

// Removed drops the metrics of a pod after everything of it was removed.
func (s *Series) Removed(uid types.UID) {
	s.starts.forget(uid)
	s.probes.forget(uid)
}
