package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// figures holds the usage of a pod or a container between two samples.
type figures struct {
	pod, container string // container is empty for the pod
	status         string
	created        time.Time
	live           bool    // the figures are known
	cpu            float64 // 1 is one processor
	memory, limit  int64
	host           int64 // host memory that its VM takes; 0 if unknown
	network        bool  // it has a network
	net, disk      api.Counters
	netRate        rate
	diskRate       rate
	pids, restarts int
}

// memoryShare returns the used share of the limit.
func (u figures) memoryShare() float64 { return float64(u.memory) / float64(max(1, u.limit)) }

// rate is in bytes per second.
type rate struct{ in, out float64 }

// sortFigures sorts pods by "cpu", "memory" or otherwise by name. The containers follow their pod in the same
// order.
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
