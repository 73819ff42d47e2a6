package stats

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/bulkhead-project/bulkhead/door/node/usage"
)

// addFiles adds the usage of a pod's layers, logs and volumes to its statistics. For storage that pods share, the
// capacity is the node's file system, of. It is nil if unknown.
func addFiles(to *statsapi.PodStats, p *usage.Pod, of *statsapi.FsStats) {
	now := metav1.Now()
	ephemeral := p.Ephemeral()
	to.EphemeralStorage = within(of, now, ephemeral)
	for _, c := range p.Stats.GetLinux().GetContainers() {
		for i := range to.Containers {
			one := &to.Containers[i]
			if one.Name != c.GetAttributes().GetMetadata().GetName() {
				continue
			}
			if layer := c.GetWritableLayer(); layer != nil {
				used := usage.Files{Bytes: layer.GetUsedBytes().GetValue(), Inodes: layer.GetInodesUsed().GetValue()}
				one.Rootfs = within(of, at(layer.GetTimestamp()), used)
			}
			if logs, known := p.Logs[one.Name]; known {
				one.Logs = within(of, now, logs)
			}
		}
	}
	for i := range p.Volumes {
		v := &p.Volumes[i]
		one := statsapi.VolumeStats{Name: v.Name, FsStats: statsapi.FsStats{
			Time: now, UsedBytes: &v.Bytes, InodesUsed: &v.Inodes, CapacityBytes: &v.Capacity, AvailableBytes: &v.Available,
		}}
		if v.AllInodes > 0 {
			one.Inodes, one.InodesFree = &v.AllInodes, &v.InodesFree
		}
		if v.Claim != "" {
			one.PVCRef = &statsapi.PVCReference{Name: v.Claim, Namespace: to.PodRef.Namespace}
		}
		to.VolumeStats = append(to.VolumeStats, one)
	}
}

// within returns the usage on a file system of the node.
func within(of *statsapi.FsStats, at metav1.Time, used usage.Files) *statsapi.FsStats {
	out := &statsapi.FsStats{Time: at, UsedBytes: &used.Bytes, InodesUsed: &used.Inodes}
	if of != nil {
		out.AvailableBytes, out.CapacityBytes, out.Inodes, out.InodesFree = of.AvailableBytes, of.CapacityBytes, of.Inodes, of.InodesFree
	}
	return out
}
