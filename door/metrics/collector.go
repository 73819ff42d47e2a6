package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bulkhead-project/bulkhead/engine"
)

// collector collects the pods, containers and memory of an engine.
type collector struct{ e *engine.Engine }

var (
	podsDesc       = prometheus.NewDesc("bulkhead_pods", "Pods, by state (ready, notready).", []string{"state"}, nil)
	containersDesc = prometheus.NewDesc("bulkhead_containers", "Containers, by state (created, running, exited).", []string{"state"}, nil)
	givenDesc      = prometheus.NewDesc("bulkhead_vm_memory_given_bytes", "Memory given to the VMs of ready pods.", nil, nil)
	takenDesc      = prometheus.NewDesc("bulkhead_vm_memory_taken_bytes",
		"Host memory used by the cgroups of these VMs and their shims.", nil, nil)
)

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{podsDesc, containersDesc, givenDesc, takenDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector. It does not ask guests.
func (p collector) Collect(to chan<- prometheus.Metric) {
	pods := map[string]int{"ready": 0, "notready": 0}
	containers := map[engine.State]int{engine.ContainerCreated: 0, engine.ContainerRunning: 0, engine.ContainerExited: 0}
	var given, taken int64 // memory
	for _, pod := range p.e.Pods() {
		if pod.Ready {
			pods["ready"]++
		} else {
			pods["notready"]++
		}
		if m, err := p.e.Meter(pod.ID); err == nil { // else it was removed
			of, by := m.Memory()
			given, taken = given+of, taken+by
		}
		for i := range pod.Containers {
			containers[pod.Containers[i].State]++
		}
	}
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for state, n := range pods {
		gauge(podsDesc, int64(n), state)
	}
	for state, n := range containers {
		gauge(containersDesc, int64(n), string(state))
	}
	gauge(givenDesc, given)
	gauge(takenDesc, taken)
}
