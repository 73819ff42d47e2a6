package series

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/usage"
)

// claims collects the usage of claim volumes.
type claims struct {
	all func() map[types.NamespacedName]usage.Volume
}

// volumeFigures are the metrics of each volume.
var volumeFigures = []struct {
	desc *prometheus.Desc
	of   func(usage.Volume) uint64
}{
	{volumeDesc("capacity_bytes", "Capacity in bytes of the volume"), func(v usage.Volume) uint64 { return v.Capacity }},
	{volumeDesc("available_bytes", "Number of available bytes in the volume"), func(v usage.Volume) uint64 { return v.Available }},
	{volumeDesc("used_bytes", "Number of used bytes in the volume"), func(v usage.Volume) uint64 { return v.Bytes }},
	{volumeDesc("inodes", "Maximum number of inodes in the volume"), func(v usage.Volume) uint64 { return v.AllInodes }},
	{volumeDesc("inodes_free", "Number of free inodes in the volume"), func(v usage.Volume) uint64 { return v.InodesFree }},
	{volumeDesc("inodes_used", "Number of used inodes in the volume"), func(v usage.Volume) uint64 { return v.Inodes }},
}

func volumeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

// Describe implements prometheus.Collector.
func (claims) Describe(to chan<- *prometheus.Desc) {
	for _, f := range volumeFigures {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c claims) Collect(to chan<- prometheus.Metric) {
	for name, v := range c.all() {
		for _, f := range volumeFigures {
			to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(f.of(v)), name.Namespace, name.Name)
		}
	}
}
