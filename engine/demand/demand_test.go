package demand

import (
	"math"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

func TestScale(t *testing.T) {
	for _, tc := range []struct{ quota, own, period, want int64 }{
		{50_000, 100_000, 100_000, 50_000},
		{50_000, 50_000, 100_000, 100_000},
		{50_000, 100_000, 50_000, 25_000},
		{50_000, 0, 50_000, 25_000}, // the kernel's period
		{50_000, -1, 100_000, 50_000},
		{3, 1, 100_000, 300_000},
		{0, 100_000, 100_000, 0},
	} {
		if got := scale(tc.quota, tc.own, tc.period); got != tc.want {
			t.Errorf("%d of %d in %d: %d, want %d", tc.quota, tc.own, tc.period, got, tc.want)
		}
	}
}

func TestOf(t *testing.T) {
	quota, period, huge, limit := int64(50_000), uint64(20_000), uint64(math.MaxUint64), int64(1<<20)
	was := sizing.Demand{Quota: 7, Period: 8, Shares: 9, MemoryLimit: 10}
	cpu := func(c specs.LinuxCPU) *specs.LinuxResources { return &specs.LinuxResources{CPU: &c} }
	with := func(quota int64, period uint64) sizing.Demand {
		return sizing.Demand{Quota: quota, Period: period, Shares: 9, MemoryLimit: 10}
	}
	for _, tc := range []struct {
		name string
		r    *specs.LinuxResources
		want sizing.Demand
	}{
		{"nothing", nil, was},
		{"no CPUs", &specs.LinuxResources{}, was},
		{"neither", cpu(specs.LinuxCPU{}), was},
		{"no period", cpu(specs.LinuxCPU{Quota: &quota}), with(50_000, 0)},
		{"no quota", cpu(specs.LinuxCPU{Period: &period}), was},
		{"both", cpu(specs.LinuxCPU{Quota: &quota, Period: &period}), with(50_000, 20_000)},
		{"more than there is", cpu(specs.LinuxCPU{Quota: &quota, Period: &huge}), with(50_000, math.MaxInt64)},
		{"shares", cpu(specs.LinuxCPU{Shares: &period}), sizing.Demand{Quota: 7, Period: 8, Shares: 20_000, MemoryLimit: 10}},
		{
			"memory", &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}},
			sizing.Demand{Quota: 7, Period: 8, Shares: 9, MemoryLimit: 1 << 20},
		},
	} {
		if got := Of(tc.r, was); got != tc.want {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}
