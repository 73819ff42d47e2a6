package vms

import (
	"fmt"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
)

// metrics converts a shim's statistics into the form of cgroup2, which all clients of containerd read. The guest has
// cgroup2, whatever the host has.
func metrics(packed *anypb.Any) (*stats.Metrics, error) {
	var st shimv1.ContainerStats
	if err := proto.Unmarshal(packed.GetValue(), &st); err != nil {
		return nil, fmt.Errorf("read the statistics: %w", err)
	}
	// Clients subtract the inactive files from the usage to get the working set.
	inactive := st.GetMemoryBytes() - min(st.GetWorkingSetBytes(), st.GetMemoryBytes())
	return &stats.Metrics{
		Pids: &stats.PidsStat{Current: st.GetPids()},
		CPU:  &stats.CPUStat{UsageUsec: st.GetCpuUsec()},
		Memory: &stats.MemoryStat{
			Usage: st.GetMemoryBytes(), Anon: st.GetRssBytes(), InactiveFile: inactive,
			Pgfault: st.GetPageFaults(), Pgmajfault: st.GetMajorPageFaults(),
		},
	}, nil
}
