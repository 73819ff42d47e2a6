package cli

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// figures are what a pod, or a container of it, uses between two samples.
type figures struct {
	pod, container string // container is empty for the pod
	status         string
	created        time.Time
	live           bool    // the figures are known
	cpu            float64 // 1 is a whole processor
	memory, limit  int64
	network        bool // it has one
	net, disk      api.Counters
	netRate        rate
	diskRate       rate
	pids, restarts int
}

// rate is bytes in a second.
type rate struct{ in, out float64 }

// meter makes figures of samples. It is used by one goroutine.
type meter struct {
	last map[string]api.PodStats // by UID
}

// add takes a sample and returns what is used since the one before, or for what
// is new since its beginning.
func (m *meter) add(list []api.PodStats) []figures {
	next := map[string]api.PodStats{}
	var all []figures
	for _, p := range list {
		before := m.last[p.UID]
		if p.CPU < before.CPU || p.Time.IsZero() || before.Time.IsZero() {
			before = api.PodStats{} // another machine
		}
		next[p.UID] = p
		all = append(all, figuresOf(before, p)...)
	}
	m.last = next
	return all
}

// figuresOf are those of a pod and of each of its containers.
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
		memory: p.Memory, limit: p.MemoryLimit, disk: p.Disk, diskRate: flow(p.Disk, before.Disk), pids: p.PIDs, restarts: p.Restarts,
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

// sortFigures orders pods by "cpu", "memory", else by name, their containers after
// each in the same order.
func sortFigures(all []figures, by string) {
	pods := map[string]figures{}
	for _, u := range all {
		if u.container == "" {
			pods[u.pod] = u
		}
	}
	order := func(a, b figures) int {
		switch by {
		case "cpu":
			return cmp.Compare(b.cpu, a.cpu)
		case "memory":
			return cmp.Compare(b.memory, a.memory)
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b figures) int {
		if a.pod != b.pod {
			return cmp.Or(order(pods[a.pod], pods[b.pod]), cmp.Compare(a.pod, b.pod))
		}
		switch {
		case a.container == "" || b.container == "":
			return cmp.Compare(a.container, b.container)
		default:
			return cmp.Or(order(a, b), cmp.Compare(a.container, b.container))
		}
	})
}

// percent prints a share as top does: 100 is a whole processor.
func percent(share float64) string { return fmt.Sprintf("%.1f", 100*share) }

// brief prints bytes in five characters at most: 999, 1.2k, 34M.
func brief(n float64) string {
	const units = "kMGTP"
	if n < 1000 {
		return fmt.Sprintf("%.0f", n)
	}
	u := -1
	for n >= 999.5 && u < len(units)-1 {
		n, u = n/1000, u+1
	}
	if n < 9.95 {
		return fmt.Sprintf("%.1f%c", n, units[u])
	}
	return fmt.Sprintf("%.0f%c", n, units[u])
}
