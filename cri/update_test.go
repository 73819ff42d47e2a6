package cri

import (
	"maps"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestUpdateOfLimits: unset values stay, and a container with a new limit of memory dies as a whole.
func TestUpdateOfLimits(t *testing.T) {
	type resources = runtimeapi.LinuxContainerResources
	whole, parts := map[string]string{"memory.oom.group": "1"}, map[string]string{"memory.oom.group": "0"}
	for what, tc := range map[string]struct {
		old, update, next *resources
		unified           map[string]string
	}{
		"the first": {nil, &resources{CpuQuota: 5}, &resources{CpuQuota: 5}, nil},
		"another limit": {
			&resources{CpuQuota: 5, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 1}}}, &resources{MemoryLimitInBytes: 7},
			&resources{CpuQuota: 5, MemoryLimitInBytes: 7, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 1}}}, whole,
		},
		"huge pages": {
			&resources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 1}}},
			&resources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 2}}},
			&resources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 2}}}, nil,
		},
		"parts that die alone": {
			&resources{Unified: parts}, &resources{MemoryLimitInBytes: 7}, &resources{MemoryLimitInBytes: 7, Unified: parts}, nil,
		},
		"parts that are to die alone": {
			&resources{MemoryLimitInBytes: 7}, &resources{MemoryLimitInBytes: 8, Unified: parts},
			&resources{MemoryLimitInBytes: 8, Unified: parts}, parts,
		},
	} {
		next := merge(tc.old, tc.update)
		if !proto.Equal(next, tc.next) {
			t.Errorf("%s: afterwards it has %v", what, next)
		}
		if got := linuxResources(tc.update, next).Unified; !maps.Equal(got, tc.unified) {
			t.Errorf("%s: the update contains %v", what, got)
		}
	}
}
