package cri

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
)

// ContainerStats returns a running container's figures.
func (s *Service) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	c, err := s.findContainer(id)
	if err != nil {
		return nil, err
	}
	all, err := c.pod.stats(ctx)
	if err != nil {
		return nil, fail(err, "stats of container %s", c.name)
	}
	for _, st := range all {
		if st.Attributes.Id == c.ID {
			return st, nil
		}
	}
	return c.attributes(), nil
}

// ListContainerStats returns the figures of running containers that match
// filter, which may be nil. A pod that does not answer is left out.
func (s *Service) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	wanted := slices.DeleteFunc(s.all(), func(p *pod) bool { return !strings.HasPrefix(p.id, filter.GetPodSandboxId()) })
	var out []*runtimeapi.ContainerStats
	for _, all := range s.statsOf(ctx, wanted) {
		for _, st := range all {
			if strings.HasPrefix(st.Attributes.Id, filter.GetId()) && matches(filter.GetLabelSelector(), st.Attributes.Labels) {
				out = append(out, st)
			}
		}
	}
	return out, ctx.Err()
}

// PodSandboxStats returns a pod's figures, summed over its containers.
func (s *Service) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	p, err := s.find(id)
	if err != nil {
		return nil, err
	}
	all, err := p.stats(ctx)
	if err != nil {
		return nil, fail(err, "stats of pod %s", short(p.id))
	}
	return p.sum(all), nil
}

// ListPodSandboxStats returns the figures of the pods that match filter, which
// may be nil. A pod that does not answer is left out.
func (s *Service) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	wanted := slices.DeleteFunc(s.all(), func(p *pod) bool {
		return !strings.HasPrefix(p.id, filter.GetId()) || !matches(filter.GetLabelSelector(), p.config.GetLabels())
	})
	var out []*runtimeapi.PodSandboxStats
	for p, all := range s.statsOf(ctx, wanted) {
		out = append(out, p.sum(all))
	}
	return out, ctx.Err()
}

// listWait bounds the wait for one pod's figures among those of others, whom a
// guest that does not answer must not keep from being seen.
const listWait = 3 * time.Second

// statsOf asks pods all at once; one that does not answer is left out.
func (s *Service) statsOf(ctx context.Context, pods []*pod) map[*pod][]*runtimeapi.ContainerStats {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	var mu sync.Mutex
	out := map[*pod][]*runtimeapi.ContainerStats{}
	var all sync.WaitGroup
	for _, p := range pods {
		all.Go(func() {
			stats, err := p.stats(ctx)
			if err != nil {
				s.log.Debug("stats of a pod", "pod", p.id, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[p] = stats
		})
	}
	all.Wait()
	return out
}

// stats asks the pod's shim about all running containers; a paused or stopped
// pod has none.
func (p *pod) stats(ctx context.Context) ([]*runtimeapi.ContainerStats, error) {
	c, err := p.shim()
	if err != nil || p.isPaused() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.ext.Stats(ctx, &shimv1.StatsRequest{})
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.ContainerStats
	for _, word := range res.GetContainers() {
		ctr := p.container(word.GetId())
		if ctr == nil {
			continue
		}
		st, at := ctr.attributes(), word.GetAt().AsTime().UnixNano()
		st.Cpu = &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: value(word.GetCpuUsec() * 1000)}
		st.Memory = &runtimeapi.MemoryUsage{
			Timestamp: at, WorkingSetBytes: value(word.GetWorkingSetBytes()), UsageBytes: value(word.GetMemoryBytes()),
			RssBytes: value(word.GetRssBytes()), PageFaults: value(word.GetPageFaults()), MajorPageFaults: value(word.GetMajorPageFaults()),
		}
		st.WritableLayer = &runtimeapi.FilesystemUsage{
			Timestamp: at, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: p.s.store.Dir(p.id)},
			UsedBytes: value(word.GetRootfsBytes()), InodesUsed: value(word.GetRootfsInodes()),
		}
		out = append(out, st)
	}
	return out, nil
}

// attributes are a container's figures without any figure.
func (c *container) attributes() *runtimeapi.ContainerStats {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	st := c.status()
	return &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id: c.ID, Metadata: st.Metadata, Labels: st.Labels, Annotations: st.Annotations,
	}}
}

func (p *pod) sum(all []*runtimeapi.ContainerStats) *runtimeapi.PodSandboxStats {
	st, now := p.status(), time.Now().UnixNano()
	var cpu, working, usage, rss uint64
	for _, c := range all {
		cpu += c.GetCpu().GetUsageCoreNanoSeconds().GetValue()
		working += c.GetMemory().GetWorkingSetBytes().GetValue()
		usage += c.GetMemory().GetUsageBytes().GetValue()
		rss += c.GetMemory().GetRssBytes().GetValue()
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: st.Id, Metadata: st.Metadata, Labels: st.Labels, Annotations: st.Annotations},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Cpu:        &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(cpu)},
			Memory:     &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: value(working), UsageBytes: value(usage), RssBytes: value(rss)},
			Containers: all,
		},
	}
}

func value(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

// ListMetricDescriptors has none yet.
func (s *Service) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, nil
}

// ListPodSandboxMetrics has none yet.
func (s *Service) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, nil
}
