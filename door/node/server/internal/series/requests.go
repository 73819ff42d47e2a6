package series

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// paths are the API paths with a label of their own. The value is true for streams. All other paths are counted as
// "other".
var paths = map[string]bool{
	"exec": true, "attach": true, "portForward": true, "containerLogs": false, "checkpoint": false, "pods": false, "runningpods": false,
	"healthz": false, "configz": false, "stats": false, "metrics": false, "metrics/resource": false, "metrics/cadvisor": false,
	"metrics/probes": false,
}

// requests are the metrics of requests to the node's API.
type requests struct {
	total    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	inflight *prometheus.GaugeVec
}

func (r *requests) register(to *prometheus.Registry) {
	labels := []string{"method", "path", "server_type", "long_running"}
	r.total = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_http_requests_total", Help: "Number of the http requests received since the server started",
	}, labels)
	r.took = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_http_requests_duration_seconds", Help: "Duration in seconds to serve http requests", Buckets: prometheus.DefBuckets,
	}, labels)
	r.inflight = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubelet_http_inflight_requests", Help: "Number of the inflight http requests",
	}, labels)
	to.MustRegister(r.total, r.took, r.inflight)
}

// Count counts the requests to next. The number of label values is bounded, whatever clients request.
func (s *Series) Count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		path, long := pathOf(r.URL.Path)
		labels := []string{methodOf(r.Method), path, "readwrite", long}
		s.requests.total.WithLabelValues(labels...).Inc()
		s.requests.inflight.WithLabelValues(labels...).Inc()
		defer func() {
			s.requests.inflight.WithLabelValues(labels...).Dec()
			s.requests.took.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}

// pathOf returns the kubelet's label for a path, and whether its requests are streams.
func pathOf(path string) (name, long string) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if first == "metrics" && rest != "" {
		first += "/" + rest
	}
	stream, known := paths[first]
	switch {
	case !known:
		return "other", "false"
	case stream:
		return first, "true"
	}
	return first, "false"
}

func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}
