package top

import (
	"slices"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// meter computes figures from samples. It is not safe for concurrent use.
type meter struct {
	last map[string]api.PodStats // by UID
}

// add takes a sample and returns the usage since the previous one. New pods count from their start.
func (m *meter) add(list []api.PodStats) []figures {
	next := map[string]api.PodStats{}
	var all []figures
	for _, p := range list {
		before := m.last[p.UID]
		if p.CPU < before.CPU || p.Time.IsZero() || before.Time.IsZero() {
			before = api.PodStats{} // another VM
		}
		next[p.UID] = p
		all = append(all, figuresOf(before, p)...)
	}
	m.last = next
	return all
}

// figuresOf returns the figures of a pod and of each of its containers.
func figuresOf(before, p api.PodStats) []figures {
	elapsed := p.Time.Sub(before.Time).Seconds()
	known := !before.Time.IsZero() && elapsed > 0
	share := func(d time.Duration) float64 {
		if !known || d < 0 {
			return 0
		}
		return d.Seconds() / elapsed
	}
	flow := func(now, then api.Counters) rate {
		if !known {
			return rate{}
		}
		return rate{max(0, float64(now.In-then.In)/elapsed), max(0, float64(now.Out-then.Out)/elapsed)}
	}
	pod := figures{
		pod: p.Name, status: p.Status, created: p.Created, live: !p.Time.IsZero(), cpu: share(p.CPU - before.CPU),
		memory: p.Memory, limit: p.MemoryLimit, host: p.HostMemory,
		disk: p.Disk, diskRate: flow(p.Disk, before.Disk), pids: p.PIDs, restarts: p.Restarts,
	}
	if p.Network != nil {
		pod.network, pod.net = true, *p.Network
		if before.Network != nil {
			pod.netRate = flow(*p.Network, *before.Network)
		}
	}
	all := []figures{pod}
	for _, c := range p.Containers {
		then := api.ContainerStats{}
		if i := slices.IndexFunc(before.Containers, func(b api.ContainerStats) bool { return b.Name == c.Name }); i >= 0 {
			then = before.Containers[i]
		}
		u := figures{pod: p.Name, container: c.Name, live: true, memory: c.Memory, limit: c.MemoryLimit, pids: c.PIDs, restarts: c.Restarts}
		if then.Name != "" {
			u.cpu = share(c.CPU - then.CPU)
		}
		if u.limit == 0 {
			u.limit = p.MemoryLimit
		}
		all = append(all, u)
	}
	return all
}
