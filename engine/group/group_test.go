package group

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/sandbox/journal"
)

// TestAtLeast checks that a pod's overhead is at least the VM's own.
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

// TestHoldCPU checks that a running pod's quota includes the VM's overhead, and that there is no limit without a
// quota or a period.
func TestHoldCPU(t *testing.T) {
	for _, tc := range []struct{ quota, period, want int64 }{
		{quota: 50_000, period: 100_000, want: 75_000}, {quota: 1, period: 4, want: 2},
		{quota: 0, period: 100_000}, {quota: -1, period: 100_000}, {quota: 50_000}, {},
	} {
		r := &store.Pod{}
		r.Cgroup.Dirs = []string{t.TempDir()}
		r.Cgroup.Limits = hostcgroup.Limits{Quota: 9, Period: 9, Memory: 1}
		New(&hostcgroup.Host{}, t.TempDir(), slog.Default()).HoldCPU(r, tc.quota, tc.period, store.Overhead{})
		l := r.Cgroup.Limits
		if l.Quota != tc.want || (l.Period == tc.period) != (tc.want != 0 || tc.period == 0) || l.Memory != 1 {
			t.Errorf("%d of %d: %+v", tc.quota, tc.period, l)
		}
	}
}

// TestWithoutAGroup checks that pods run without limits on a host without cgroups, and that their records say why.
func TestWithoutAGroup(t *testing.T) {
	g, r := New(&hostcgroup.Host{}, t.TempDir(), slog.Default()), &store.Pod{ID: "x"}
	if err := g.Make(t.Context(), journal.At(t.TempDir()), r, 0); err != nil || len(r.Cgroup.Dirs) != 0 {
		t.Errorf("%+v, %v", r.Cgroup, err)
	}
	g.HoldCPU(r, 1, 2, store.Overhead{})
	g.Remake(r)
	if r.Cgroup.Limits != (hostcgroup.Limits{}) {
		t.Errorf("limited to %+v", r.Cgroup.Limits)
	}
	if In(r, nil) != nil {
		t.Error("a process starts otherwise")
	}
}

// TestEnd checks that an empty cgroup can be ended, and that a foreign journal entry is an error.
func TestEnd(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	if err := Destroy(t.Context(), json.RawMessage(fmt.Sprintf(`{"dirs":[%q]}`, gone))); err != nil {
		t.Error(err)
	}
	if err := Destroy(t.Context(), json.RawMessage("{")); err == nil {
		t.Error("no entry is ended")
	}
}

// TestStartingWeighsLess checks that a VM has a low weight only during its start.
func TestStartingWeighsLess(t *testing.T) {
	l := MemoryLimits(512, store.Overhead{})
	if l.Weight <= 0 || l.Weight >= 100 {
		t.Errorf("a starting VM weighs %d percent", l.Weight)
	}
	dir := t.TempDir()
	r := &store.Pod{}
	r.Cgroup.Dirs, r.Cgroup.Limits = []string{dir}, l
	New(&hostcgroup.Host{}, t.TempDir(), slog.Default()).HoldCPU(r, 0, 0, store.Overhead{})
	if r.Cgroup.Limits.Weight != 0 || r.Cgroup.Limits.Memory != l.Memory {
		t.Errorf("a running VM has %+v", r.Cgroup.Limits)
	}
}
