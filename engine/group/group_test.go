package group

import (
	"log/slog"
	"testing"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// TestAtLeast: a pod's overhead is no less than what its VM takes.
func TestAtLeast(t *testing.T) {
	for _, test := range []struct {
		name    string
		o, want store.Overhead
	}{
		{name: "none", want: store.Overhead{Memory: overheadMemory, CPU: overheadCPU}},
		{name: "less", o: store.Overhead{Memory: 1 << 20, CPU: 0.01}, want: store.Overhead{Memory: overheadMemory, CPU: overheadCPU}},
		{name: "more", o: store.Overhead{Memory: 1 << 30, CPU: 0.5}, want: store.Overhead{Memory: 1 << 30, CPU: 0.5}},
	} {
		if got := atLeast(test.o); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
	if got := MemoryLimits(512, store.Overhead{}).Memory; got != 512<<20+overheadMemory {
		t.Errorf("the memory of a VM of 512 MiB is limited to %d bytes", got)
	}
}

// TestShare: what HoldCPU gives, Share takes back.
func TestShare(t *testing.T) {
	var r store.Pod
	if got := Share(&r, store.Overhead{}); got != 0 {
		t.Errorf("the share of a group without a limit: %d", got)
	}
	r.Cgroup.Limits.Quota, r.Cgroup.Limits.Period = 75_000, 100_000
	if got := Share(&r, store.Overhead{}); got != 50_000 {
		t.Errorf("the share of 75000 of 100000: %d, want 50000", got)
	}
}

// TestStartingWeighsLess: a VM that is being started gives way to running pods,
// and no longer when it runs.
func TestStartingWeighsLess(t *testing.T) {
	l := MemoryLimits(512, store.Overhead{})
	if l.Weight <= 0 || l.Weight >= 100 {
		t.Errorf("a starting VM weighs %d percent", l.Weight)
	}
	dir := t.TempDir()
	r := &store.Pod{}
	r.Cgroup.Dirs, r.Cgroup.Limits = []string{dir}, l
	New(&hostcgroup.Host{}, slog.Default()).HoldCPU(r, 0, 0, store.Overhead{})
	if r.Cgroup.Limits.Weight != 0 || r.Cgroup.Limits.Memory != l.Memory {
		t.Errorf("a running VM has %+v", r.Cgroup.Limits)
	}
}
