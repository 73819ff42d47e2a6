package vms

import (
	"math"

	"github.com/containerd/cgroups/v3/cgroup2/stats"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// metrics converts statistics into the form of cgroup2, which all clients of containerd read. The guest has cgroup2,
// whatever the host has.
func metrics(st *agentv1.Stats) *stats.Metrics {
	// Clients subtract the inactive files from the usage to get the working set.
	inactive := st.MemoryBytes - min(st.WorkingSet, st.MemoryBytes)
	limit := st.MemoryLimit
	if limit == 0 { // from an agent that does not report it
		limit = math.MaxUint64
	}
	return &stats.Metrics{
		Pids: &stats.PidsStat{Current: st.Pids},
		CPU:  &stats.CPUStat{UsageUsec: st.CPUUsec},
		Memory: &stats.MemoryStat{
			Usage: st.MemoryBytes, UsageLimit: limit, Anon: st.RSS, InactiveFile: inactive,
			Pgfault: st.PageFaults, Pgmajfault: st.MajPageFaults,
		},
	}
}
