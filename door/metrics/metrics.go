// Package metrics provides the Prometheus metrics of the doors cri and node: the engine's measurements
// (engine/measure), its pods, and its clients' calls.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/internal/version"
)

// Metrics are the metrics of one door, and its engine's measure.Observer. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	starts, notForked *prometheus.CounterVec
	took, phases      *prometheus.HistogramVec
	stopParts         *prometheus.HistogramVec
	events            [measure.Events]prometheus.Counter
	calls             *prometheus.CounterVec
	callTook          *prometheus.HistogramVec
}

// Buckets of durations in seconds: for starts, from a fork's phases to the longest start; for calls, from a version
// query to the pull of a large image.
var (
	startBuckets = prometheus.ExponentialBuckets(0.001, 2, 18)
	callBuckets  = prometheus.ExponentialBuckets(0.001, 4, 10)
)

// New returns Metrics with all counters at zero.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.starts = m.counter("bulkhead_pod_starts_total",
		"Pod starts, by the way the VM was made (fork, clone, boot) and by result (ok, failed).", "vm", "result")
	m.notForked = m.counter("bulkhead_pod_not_forked_total", "Started pods with a cloned VM, by the reason why it was not forked.", "reason")
	m.took = m.histogram("bulkhead_pod_start_seconds", "Duration of successful pod starts.", startBuckets, "vm")
	m.phases = m.histogram("bulkhead_pod_start_phase_seconds", "Duration of each phase of successful pod starts.", startBuckets, "phase", "vm")
	m.stopParts = m.histogram("bulkhead_pod_stop_phase_seconds",
		"Duration of each part of pod stops. Some parts run concurrently.", startBuckets, "phase")
	templates := m.counter("bulkhead_template_requests_total",
		"Requests for a VM template, by result: it existed (hit), was built, or the build failed.", "result")
	warm := m.counter("bulkhead_warm_vms_total",
		"Warm VMs, by event: made, made to replace an older one (renewed), failed, or dropped.", "event")
	leaks := m.counter("bulkhead_reaped_total",
		"Leftovers of killed processes, by result: pods adopted by another shim, removed, or not removable (failed).", "result")
	m.events = [measure.Events]prometheus.Counter{
		measure.TemplateHit:    templates.WithLabelValues("hit"),
		measure.TemplateBuilt:  templates.WithLabelValues("built"),
		measure.TemplateFailed: templates.WithLabelValues("failed"),
		measure.WarmMade:       warm.WithLabelValues("made"),
		measure.WarmRenewed:    warm.WithLabelValues("renewed"),
		measure.WarmFailed:     warm.WithLabelValues("failed"),
		measure.WarmDropped:    warm.WithLabelValues("dropped"),
		measure.LeakAdopted:    leaks.WithLabelValues("adopted"),
		measure.LeakRemoved:    leaks.WithLabelValues("removed"),
		measure.LeakFailed:     leaks.WithLabelValues("failed"),
	}
	// These two have the names that are usual for gRPC servers.
	m.calls = m.counter("grpc_server_handled_total", "Finished calls, by code.", "grpc_service", "grpc_method", "grpc_code")
	m.callTook = m.histogram("grpc_server_handling_seconds", "Duration of calls.", callBuckets, "grpc_service", "grpc_method")
	for _, vm := range []measure.VM{measure.Fork, measure.Clone, measure.Boot} {
		for _, result := range []string{"ok", "failed"} {
			m.starts.WithLabelValues(string(vm), result)
		}
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "bulkhead_build_info", Help: "Always 1.", ConstLabels: prometheus.Labels{"version": version.Version},
	})
	build.Set(1)
	m.registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

// Started implements measure.Observer.
func (m *Metrics) Started(s measure.Start) {
	vm := string(s.VM)
	if s.Failed {
		m.starts.WithLabelValues(vm, "failed").Inc()
		return
	}
	m.starts.WithLabelValues(vm, "ok").Inc()
	m.took.WithLabelValues(vm).Observe(s.Took.Seconds())
	for _, p := range s.Phases {
		m.phases.WithLabelValues(p.Name, vm).Observe(p.Took.Seconds())
	}
	if s.NotForked != "" {
		m.notForked.WithLabelValues(string(s.NotForked)).Inc()
	}
}

// Stopped implements measure.Observer.
func (m *Metrics) Stopped(parts []measure.Phase) {
	for _, p := range parts {
		m.stopParts.WithLabelValues(p.Name).Observe(p.Took.Seconds())
	}
}

// Count implements measure.Observer.
func (m *Metrics) Count(e measure.Event, n int) { m.events[e].Add(float64(n)) }

// Called counts a finished call.
func (m *Metrics) Called(service, method string, code codes.Code, took time.Duration) {
	m.calls.WithLabelValues(service, method, code.String()).Inc()
	m.callTook.WithLabelValues(service, method).Observe(took.Seconds())
}

// AddEngine adds the engine's current pods, containers and memory to the metrics. It is called once.
func (m *Metrics) AddEngine(e *engine.Engine) { m.registry.MustRegister(collector{e}) }

// Gatherer returns the metrics for a server that also serves others.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}
