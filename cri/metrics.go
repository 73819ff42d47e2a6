package cri

import (
	"context"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/usage"
)

// metricLabels are the labels of every metric, in the order of their values; they are cAdvisor's.
var metricLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

// The last label of some metrics.
const (
	failureLabel   = "failure_type"
	interfaceLabel = "interface"
)

// metric is a metric of a container, with cAdvisor's name.
type metric struct {
	name, help string
	kind       runtimeapi.MetricType
	of         func(*engine.Container, *usage.Container) uint64
	label      [2]string // an additional label and its value
}

const (
	counter = runtimeapi.MetricType_COUNTER
	gauge   = runtimeapi.MetricType_GAUGE
)

// containerMetrics are the metrics of a running container. Metrics with the same name are adjacent.
var containerMetrics = []metric{
	{name: "container_cpu_usage_seconds_total", help: "CPU time used, in seconds.", kind: counter,
		of: func(_ *engine.Container, u *usage.Container) uint64 { return uint64(u.CPU() / time.Second) }},
	{name: "container_memory_usage_bytes", help: "Memory used, caches included, in bytes.", kind: gauge,
		of: func(_ *engine.Container, u *usage.Container) uint64 { return u.MemoryBytes }},
	{name: "container_memory_working_set_bytes", help: "Memory that cannot be had back easily, in bytes.", kind: gauge,
		of: func(_ *engine.Container, u *usage.Container) uint64 { return u.WorkingSet }},
	{name: "container_memory_rss", help: "Memory of no file, in bytes.", kind: gauge,
		of: func(_ *engine.Container, u *usage.Container) uint64 { return u.RSS }},
	{name: "container_memory_failures_total", help: "Page faults.", kind: counter, label: [2]string{failureLabel, "pgfault"},
		of: func(_ *engine.Container, u *usage.Container) uint64 { return u.PageFaults }},
	{name: "container_memory_failures_total", help: "Page faults.", kind: counter, label: [2]string{failureLabel, "pgmajfault"},
		of: func(_ *engine.Container, u *usage.Container) uint64 { return u.MajPageFaults }},
	{name: "container_fs_usage_bytes", help: "Bytes of the writable layer.", kind: gauge,
		of: func(_ *engine.Container, u *usage.Container) uint64 { return u.RootfsBytes }},
	{name: "container_processes", help: "Processes and threads.", kind: gauge,
		of: func(_ *engine.Container, u *usage.Container) uint64 { return u.Pids }},
	{name: "container_start_time_seconds", help: "Start time, in seconds since 1970.", kind: gauge,
		of: func(c *engine.Container, _ *usage.Container) uint64 { return uint64(max(c.Started.Unix(), 0)) }},
}

// podMetric is a metric of a pod's network interface.
type podMetric struct {
	name, help string
	of         func(*agentv1.NetUsage) uint64
}

var podMetrics = []podMetric{
	{"container_network_receive_bytes_total", "Bytes received.", func(n *agentv1.NetUsage) uint64 { return n.RxBytes }},
	{"container_network_transmit_bytes_total", "Bytes transmitted.", func(n *agentv1.NetUsage) uint64 { return n.TxBytes }},
}

// ListMetricDescriptors describes the metrics of ListPodSandboxMetrics.
func (s *Service) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	var out []*runtimeapi.MetricDescriptor
	for i, m := range containerMetrics {
		if i > 0 && m.name == containerMetrics[i-1].name {
			continue
		}
		keys := metricLabels
		if m.label[0] != "" {
			keys = append(slices.Clone(keys), m.label[0])
		}
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: keys})
	}
	for _, m := range podMetrics {
		keys := append(slices.Clone(metricLabels), interfaceLabel)
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: keys})
	}
	return out, nil
}

// ListPodSandboxMetrics returns the metrics of the running pods and their containers. It leaves out pods that do not
// answer.
func (s *Service) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	pods := s.all()
	usages := usagesOf(ctx, s, pods)
	var out []*runtimeapi.PodSandboxMetrics
	for _, p := range pods {
		if u := usages[p.ID]; u != nil {
			out = append(out, s.records.metricsOf(&p, u))
		}
	}
	return out, ctx.Err()
}

func (r *records) metricsOf(p *engine.Pod, u *usage.Usage) *runtimeapi.PodSandboxMetrics {
	meta := r.podOf(p).config.GetMetadata()
	out := &runtimeapi.PodSandboxMetrics{PodSandboxId: p.ID}
	cards := u.Cards
	if u.Network != nil {
		first := *u.Network
		first.Name = guestInterface
		cards = append([]agentv1.NetUsage{first}, cards...)
	}
	for _, m := range podMetrics {
		for _, c := range cards {
			out.Metrics = append(out.Metrics, &runtimeapi.Metric{
				Name: m.name, MetricType: counter, Value: value(m.of(&c)),
				LabelValues: []string{"", p.ID, "", p.ID, meta.GetNamespace(), meta.GetName(), c.Name},
			})
		}
	}
	for i := range u.Containers {
		used := &u.Containers[i]
		at := slices.IndexFunc(p.Containers, func(c engine.Container) bool { return c.ID == used.ID })
		if at < 0 {
			continue
		}
		c := &p.Containers[at]
		one := &runtimeapi.ContainerMetrics{ContainerId: c.ID}
		labels := []string{
			c.Name, c.ID, r.containerOf(c).config.GetImage().GetImage(), c.ID, meta.GetNamespace(), meta.GetName(),
		}
		for _, m := range containerMetrics {
			own := labels
			if m.label[0] != "" {
				own = append(slices.Clone(labels), m.label[1])
			}
			one.Metrics = append(one.Metrics, &runtimeapi.Metric{
				Name: m.name, MetricType: m.kind, LabelValues: own, Value: value(m.of(c, used)),
			})
		}
		out.ContainerMetrics = append(out.ContainerMetrics, one)
	}
	return out
}
