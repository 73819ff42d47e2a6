// Package stats reports the resource usage of a node and its pods like a kubelet: a summary in JSON, and metrics in the
// Prometheus format, which metrics-server reads for kubectl top.
package stats

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/bulkhead-project/bulkhead/door/node/host"
	"github.com/bulkhead-project/bulkhead/door/node/usage"
)

// Node describes the node: its name, and a directory on the file system with its pods' disks.
type Node struct {
	Name, Dir string
	// Source returns the usage of the node's pods.
	Source func(context.Context) (map[types.UID]usage.Pod, error)
	// Statuses returns the statuses of the node's pods. It may be nil.
	Statuses func() map[types.UID]corev1.PodStatus
}

// Summary returns the current usage of the node and its pods.
func (n *Node) Summary(ctx context.Context) (*statsapi.Summary, error) {
	list, err := n.pods(ctx)
	if err != nil {
		return nil, err
	}
	memory, err := host.Memory()
	if err != nil {
		return nil, err
	}
	cpu, err := host.CPU()
	if err != nil {
		return nil, err
	}
	now := metav1.Now()
	core, used := uint64(cpu.Nanoseconds()), memory.Total-memory.Available
	out := &statsapi.Summary{Node: statsapi.NodeStats{
		NodeName: n.Name,
		CPU:      &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &core},
		Memory:   &statsapi.MemoryStats{Time: now, AvailableBytes: &memory.Available, UsageBytes: &used, WorkingSetBytes: &used},
	}}
	if disk, err := host.DiskOf(n.Dir); err == nil {
		taken, inodes := disk.Total-disk.Free, disk.Inodes-disk.FreeInodes
		out.Node.Fs = &statsapi.FsStats{
			Time: now, AvailableBytes: &disk.Available, CapacityBytes: &disk.Total, UsedBytes: &taken,
			InodesFree: &disk.FreeInodes, Inodes: &disk.Inodes, InodesUsed: &inodes,
		}
	}
	for i := range list {
		one := podStats(&list[i])
		addFiles(&one, &list[i], out.Node.Fs)
		out.Pods = append(out.Pods, one)
	}
	return out, nil
}

// pods returns the usage of the node's pods, sorted by name.
func (n *Node) pods(ctx context.Context) ([]usage.Pod, error) {
	all, err := n.Source(ctx)
	if err != nil {
		return nil, err
	}
	name := func(p *usage.Pod) string {
		meta := p.Stats.GetAttributes().GetMetadata()
		return meta.GetNamespace() + "/" + meta.GetName() + "/" + meta.GetUid()
	}
	return slices.SortedFunc(maps.Values(all), func(a, b usage.Pod) int { return cmp.Compare(name(&a), name(&b)) }), nil
}

func podStats(p *usage.Pod) statsapi.PodStats {
	meta, linux := p.Stats.GetAttributes().GetMetadata(), p.Stats.GetLinux()
	out := statsapi.PodStats{
		PodRef: statsapi.PodReference{Name: meta.GetName(), Namespace: meta.GetNamespace(), UID: meta.GetUid()},
		CPU:    cpuStats(linux.GetCpu()), Memory: memoryStats(linux.GetMemory()),
	}
	if network := linux.GetNetwork(); network != nil {
		own := network.GetDefaultInterface()
		rx, tx := own.GetRxBytes().GetValue(), own.GetTxBytes().GetValue()
		out.Network = &statsapi.NetworkStats{
			Time: at(network.GetTimestamp()), InterfaceStats: statsapi.InterfaceStats{Name: own.GetName(), RxBytes: &rx, TxBytes: &tx},
		}
	}
	if process := linux.GetProcess(); process != nil {
		n := process.GetProcessCount().GetValue()
		out.ProcessStats = &statsapi.ProcessStats{ProcessCount: &n}
	}
	for _, c := range linux.GetContainers() {
		one := statsapi.ContainerStats{
			Name: c.GetAttributes().GetMetadata().GetName(), CPU: cpuStats(c.GetCpu()), Memory: memoryStats(c.GetMemory()),
		}
		out.Containers = append(out.Containers, one)
	}
	return out
}

func at(nanoseconds int64) metav1.Time { return metav1.NewTime(time.Unix(0, nanoseconds)) }

func cpuStats(u *runtimeapi.CpuUsage) *statsapi.CPUStats {
	if u == nil {
		return nil
	}
	core := u.GetUsageCoreNanoSeconds().GetValue()
	return &statsapi.CPUStats{Time: at(u.GetTimestamp()), UsageCoreNanoSeconds: &core}
}

func memoryStats(u *runtimeapi.MemoryUsage) *statsapi.MemoryStats {
	if u == nil {
		return nil
	}
	working, usage, rss := u.GetWorkingSetBytes().GetValue(), u.GetUsageBytes().GetValue(), u.GetRssBytes().GetValue()
	return &statsapi.MemoryStats{Time: at(u.GetTimestamp()), WorkingSetBytes: &working, UsageBytes: &usage, RSSBytes: &rss}
}

// statuses returns the statuses of the node's pods.
func (n *Node) statuses() map[types.UID]corev1.PodStatus {
	if n.Statuses == nil {
		return nil
	}
	return n.Statuses()
}
