package cri

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/usage"
)

// ContainerStats returns a running container's statistics.
func (s *Service) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	c, err := s.engine.Container(id)
	if err != nil {
		return nil, err
	}
	p, err := s.engine.Pod(c.PodID)
	if err != nil {
		return nil, err
	}
	m, err := s.engine.Meter(c.PodID)
	if err != nil {
		return nil, err
	}
	u, err := m.Usage(ctx)
	if err != nil {
		return nil, failure.Wrap(err, "stats of container %s", c.Name)
	}
	for _, st := range s.records.containerStats(&p, u, s.engine.Dir(p.ID)) {
		if st.Attributes.Id == c.ID {
			return st, nil
		}
	}
	return s.records.attributes(&c), nil
}

// ListContainerStats returns the statistics of running containers that match filter, which may be nil. It leaves out
// pods that do not answer.
func (s *Service) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	pods := slices.DeleteFunc(s.all(), func(p engine.Pod) bool { return !strings.HasPrefix(p.ID, filter.GetPodSandboxId()) })
	usages := usagesOf(ctx, s, pods)
	var out []*runtimeapi.ContainerStats
	for _, p := range pods {
		for _, st := range s.records.containerStats(&p, usages[p.ID], s.engine.Dir(p.ID)) {
			if strings.HasPrefix(st.Attributes.Id, filter.GetId()) && matches(filter.GetLabelSelector(), st.Attributes.Labels) {
				out = append(out, st)
			}
		}
	}
	return out, ctx.Err()
}

// PodSandboxStats returns a pod's statistics, summed over its containers.
func (s *Service) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	p, err := s.find(id)
	if err != nil {
		return nil, err
	}
	m, err := s.engine.Meter(p.ID)
	if err != nil {
		return nil, err
	}
	u, err := m.Usage(ctx)
	if err != nil {
		return nil, err
	}
	return s.records.sum(&p, u, s.engine.Dir(p.ID)), nil
}

// Allocatable returns the resources of the pod's VM, which a container without limits can use.
func (s *Service) Allocatable(ctx context.Context, sandbox string) (corev1.ResourceList, error) {
	facts, err := s.engine.Facts(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(facts.VCPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(facts.MemoryMiB<<20, resource.BinarySI),
	}, nil
}

// PodUsage is a pod's usage including its emptyDirs, for which the CRI has no fields.
type PodUsage struct {
	*runtimeapi.PodSandboxStats
	Volumes []agentv1.VolumeUsage
}

// ListPodSandboxStats returns the statistics of the pods that match filter, which may be nil. It leaves out pods that
// do not answer.
func (s *Service) ListPodSandboxStats(
	ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter,
) ([]*runtimeapi.PodSandboxStats, error) {
	all, err := s.PodUsages(ctx, filter)
	var out []*runtimeapi.PodSandboxStats
	for _, one := range all {
		out = append(out, one.PodSandboxStats)
	}
	return out, err
}

// PodUsages is ListPodSandboxStats with the pods' emptyDirs.
func (s *Service) PodUsages(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]PodUsage, error) {
	pods := slices.DeleteFunc(s.all(), func(p engine.Pod) bool {
		return !strings.HasPrefix(p.ID, filter.GetId()) || !matches(filter.GetLabelSelector(), s.records.podOf(&p).config.GetLabels())
	})
	usages := usagesOf(ctx, s, pods)
	var out []PodUsage
	for _, p := range pods {
		u, answered := usages[p.ID]
		if !answered {
			continue
		}
		one := PodUsage{PodSandboxStats: s.records.sum(&p, u, s.engine.Dir(p.ID))}
		if u != nil {
			one.Volumes = u.Volumes
		}
		out = append(out, one)
	}
	return out, ctx.Err()
}

// usagesOf returns the usage of the pods. A pod that does not answer is missing.
func usagesOf(ctx context.Context, s *Service, pods []engine.Pod) map[string]*usage.Usage {
	var meters []usage.Meter
	for _, p := range pods {
		if m, err := s.engine.Meter(p.ID); err == nil { // else it was removed
			meters = append(meters, m)
		}
	}
	return usage.All(ctx, meters, s.log)
}

// containerStats returns the statistics of a pod's running containers, none for a paused or stopped pod. dir is
// the directory of their writable layers.
func (r *records) containerStats(p *engine.Pod, u *usage.Usage, dir string) []*runtimeapi.ContainerStats {
	if u == nil {
		return nil
	}
	var out []*runtimeapi.ContainerStats
	for _, used := range u.Containers {
		i := slices.IndexFunc(p.Containers, func(c engine.Container) bool { return c.ID == used.ID })
		if i < 0 {
			continue
		}
		st, at := r.attributes(&p.Containers[i]), used.At.UnixNano()
		st.Cpu = &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: value(uint64(used.CPU()))}
		st.Memory = &runtimeapi.MemoryUsage{
			Timestamp: at, WorkingSetBytes: value(used.WorkingSet), UsageBytes: value(used.MemoryBytes),
			RssBytes: value(used.RSS), PageFaults: value(used.PageFaults), MajorPageFaults: value(used.MajPageFaults),
		}
		st.WritableLayer = &runtimeapi.FilesystemUsage{
			Timestamp: at, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: dir},
			UsedBytes: value(used.RootfsBytes), InodesUsed: value(used.RootfsInodes),
		}
		out = append(out, st)
	}
	return out
}

// attributes returns statistics with only the container's attributes.
func (r *records) attributes(c *engine.Container) *runtimeapi.ContainerStats {
	st := r.containerStatus(c)
	return &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id: c.ID, Metadata: st.Metadata, Labels: st.Labels, Annotations: st.Annotations,
	}}
}

func (r *records) sum(p *engine.Pod, u *usage.Usage, dir string) *runtimeapi.PodSandboxStats {
	st, now, all := r.podStatus(p), time.Now().UnixNano(), r.containerStats(p, u, dir)
	var cpu, working, usage, rss, pids uint64
	for _, c := range all {
		cpu += c.GetCpu().GetUsageCoreNanoSeconds().GetValue()
		working += c.GetMemory().GetWorkingSetBytes().GetValue()
		usage += c.GetMemory().GetUsageBytes().GetValue()
		rss += c.GetMemory().GetRssBytes().GetValue()
	}
	linux := &runtimeapi.LinuxPodSandboxStats{
		Cpu: &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(cpu)},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp: now, WorkingSetBytes: value(working), UsageBytes: value(usage), RssBytes: value(rss),
		},
		Containers: all,
	}
	if u != nil {
		for _, c := range u.Containers {
			pids += c.Pids
		}
		linux.Process = &runtimeapi.ProcessUsage{Timestamp: now, ProcessCount: value(pids)}
	}
	if u != nil && u.Network != nil {
		linux.Network = &runtimeapi.NetworkUsage{Timestamp: now, DefaultInterface: interfaceUsage(guestInterface, u.Network)}
		for _, c := range u.Cards {
			linux.Network.Interfaces = append(linux.Network.Interfaces, interfaceUsage(c.Name, &c))
		}
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: st.Id, Metadata: st.Metadata, Labels: st.Labels, Annotations: st.Annotations},
		Linux:      linux,
	}
}

func interfaceUsage(name string, u *agentv1.NetUsage) *runtimeapi.NetworkInterfaceUsage {
	return &runtimeapi.NetworkInterfaceUsage{Name: name, RxBytes: value(u.RxBytes), TxBytes: value(u.TxBytes)}
}

// guestInterface is the name of a pod's first interface in its containers.
const guestInterface = "eth0"

func value(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }
