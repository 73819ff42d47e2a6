package series

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// podCollector counts pods and containers.
type podCollector struct {
	statuses func() map[types.UID]corev1.PodStatus
}

var (
	podsDesc       = prometheus.NewDesc("kubelet_running_pods", "Number of pods that have a running pod sandbox", nil, nil)
	containersDesc = prometheus.NewDesc("kubelet_running_containers", "Number of containers, by state", []string{"container_state"}, nil)
)

// Describe implements prometheus.Collector.
func (podCollector) Describe(to chan<- *prometheus.Desc) {
	to <- podsDesc
	to <- containersDesc
}

// Collect implements prometheus.Collector.
func (p podCollector) Collect(to chan<- prometheus.Metric) {
	pods, containers := 0, map[string]int{"created": 0, "running": 0, "exited": 0}
	for _, status := range p.statuses() {
		if status.Phase == corev1.PodRunning {
			pods++
		}
		for c := range podstatus.Every(&status) {
			switch {
			case c.State.Running != nil:
				containers["running"]++
			case c.State.Terminated != nil:
				containers["exited"]++
			case c.ContainerID != "":
				containers["created"]++
			}
		}
	}
	to <- prometheus.MustNewConstMetric(podsDesc, prometheus.GaugeValue, float64(pods))
	for state, n := range containers {
		to <- prometheus.MustNewConstMetric(containersDesc, prometheus.GaugeValue, float64(n), state)
	}
}
