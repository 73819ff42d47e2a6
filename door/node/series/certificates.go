package series

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// failures are the names of the counters of certificates that could not be renewed.
var failures = map[string]string{
	"client": "kubelet_certificate_manager_client_expiration_renew_errors",
	"server": "kubelet_server_expiration_renew_errors",
}

// register has one of the node's certificates be told of, client or server.
func register(to *prometheus.Registry, which string, c Certificate) {
	expires, failed := func() time.Time { return time.Time{} }, func() uint64 { return 0 }
	if c != nil {
		expires, failed = c.Expires, c.RenewFailures
	}
	to.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_certificate_manager_" + which + "_ttl_seconds",
		Help: "Seconds until the node's " + which + " certificate expires, negative if it has, +Inf if the node renews none.",
	}, func() float64 {
		at := expires()
		if at.IsZero() {
			return math.Inf(1)
		}
		return time.Until(at).Seconds()
	}), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: failures[which], Help: "Counter of failures to renew the node's " + which + " certificate.",
	}, func() float64 { return float64(failed()) }))
}
