package series

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// failures maps a certificate to the counter of its failed renewals.
var failures = map[string]string{
	"client": "kubelet_certificate_manager_client_expiration_renew_errors",
	"server": "kubelet_server_expiration_renew_errors",
}

// register adds the metrics of the client or server certificate.
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
