package node

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/server/series"
	"github.com/bulkhead-project/bulkhead/door/node/usage"
)

// measured is a runtime with metrics. A runtime of another program serves its metrics itself.
type measured interface{ Metrics() prometheus.Gatherer }

// newSeries creates the collectors of /metrics. Certificates are included if the node has any.
func (n *node) newSeries() {
	o := series.Options{Node: n.o.Name, Statuses: func() map[types.UID]corev1.PodStatus { return n.runner.Statuses() }}
	o.Claims = func() map[types.NamespacedName]usage.Volume { return n.runner.Claims() }
	if r, is := n.runtime.(measured); is {
		o.More = r.Metrics()
	}
	if n.o.Client != nil {
		o.Client = n.o.Client
	}
	if n.certs != nil {
		o.Serving = n.certs
	}
	n.series = series.New(o)
}
