package oci

import (
	"testing"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
)

// TestOwner: a namespace leads to the pod's VM or to the container that it belongs to. Of a pod that began with a container,
// the first one has the VM's namespaces.
func TestOwner(t *testing.T) {
	pods := []*enginev1.Pod{
		{Id: "other", Record: []byte("no JSON"), Containers: []*enginev1.Container{{Id: "x"}}},
		{
			Id: "cri", Record: []byte(`{"net":"1:1","ipc":"1:2"}`),
			Containers: []*enginev1.Container{{Id: "m1", Record: []byte(`{"pid":"1:3"}`)}},
		},
		{Id: "docker", Containers: []*enginev1.Container{
			{Id: "first", Record: []byte(`{"net":"1:4","ipc":"1:5"}`)}, {Id: "second", Record: []byte(`{"ipc":"1:6"}`)},
		}},
		{Id: "empty"},
	}
	for _, test := range []struct {
		name, id, pod, container string
		vm                       bool
	}{
		{"net", "1:1", "cri", "", true},
		{"ipc", "1:2", "cri", "", true},
		{"pid", "1:3", "cri", "m1", false},
		{"net", "1:4", "docker", "first", true},
		{"ipc", "1:6", "docker", "second", false},
		{"uts", "1:1", "", "", false},
	} {
		pod, container := owner(pods, test.name, test.id)
		if pod.GetId() != test.pod || container != test.container {
			t.Errorf("%s %s: got %q, %q, want %q, %q", test.name, test.id, pod.GetId(), container, test.pod, test.container)
		} else if pod != nil && ownsVM(pod, container) != test.vm {
			t.Errorf("%s %s: ownsVM: got %v, want %v", test.name, test.id, !test.vm, test.vm)
		}
	}
}

func TestPodStats(t *testing.T) {
	got := sum(agentv1.PodStats{Memory: agentv1.Memory{Total: 50}, Containers: map[string]agentv1.Stats{
		"a": {CPUUsec: 1, MemoryBytes: 10, MemoryLimit: 30, WorkingSet: 5, RSS: 3, Pids: 1}, "b": {CPUUsec: 2, MemoryBytes: 20, Pids: 2},
	}})
	if got.CPUUsec != 3 || got.MemoryBytes != 30 || got.WorkingSet != 5 || got.RSS != 3 || got.Pids != 3 || got.MemoryLimit != 50 {
		t.Errorf("got %v", got)
	}
}
