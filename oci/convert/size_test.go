package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

func TestSize(t *testing.T) {
	const limits = `"linux":{"resources":{"cpu":{"quota":150000,"period":100000},"memory":{"limit":67108864}}}`
	const hardware = `"vm":{"hwconfig":{"vcpus":3,"memory":2147483648}}`
	const cri = `"io.kubernetes.cri.sandbox-cpu-quota":"250000","io.kubernetes.cri.sandbox-cpu-period":"50000",
		"io.kubernetes.cri.sandbox-cpu-shares":"512","io.kubernetes.cri.sandbox-memory":"536870912"`
	const kata = `"io.katacontainers.config.hypervisor.default_vcpus":"6","io.katacontainers.config.hypervisor.default_memory":"4096"`
	const ours = `"io.bulkhead.cpus":"7","io.bulkhead.memory":"1024"`
	cpus := func(n int64) sizing.Demand { return sizing.Demand{Quota: n * 100_000, Period: 100_000} }
	memory := func(d sizing.Demand, mib int64) sizing.Demand {
		d.MemoryLimit = mib << 20
		return d
	}
	for fields, want := range map[string]sizing.Demand{
		``:                      DefaultSize,
		limits:                  {Quota: 150_000, Period: 100_000, MemoryLimit: 64 << 20},
		limits + "," + hardware: memory(cpus(3), 2048-160),
		`"annotations":{` + cri + `},` + limits + "," + hardware: {
			Quota: 250_000, Period: 50_000, Shares: 512, MemoryLimit: 512 << 20,
		},
		`"annotations":{` + kata + "," + cri + `},` + limits:              memory(cpus(6), 4096-160),
		`"annotations":{` + ours + "," + kata + "," + cri + `},` + limits: memory(cpus(7), 1024-160),
		`"annotations":{"io.bulkhead.cpus":"0.5"}`:                        memory(cpus(1), 1024-160),
		`"annotations":{"io.bulkhead.memory":"512"},` + limits: {
			Quota: 150_000, Period: 100_000, MemoryLimit: 352 << 20,
		},
		`"annotations":{"io.bulkhead.memory":"1"}`: {Shares: 2048, MemoryLimit: 1 << 20},

		`"linux":{"resources":{"cpu":{"shares":3000}}}`: {
			Shares: 3000, MemoryLimit: (1024 - 160) << 20,
		},
		`"linux":{"resources":{"cpu":{"shares":2,"quota":-1},"memory":{"limit":-1}}}`:                       DefaultSize,
		`"linux":{"resources":{"cpu":{"quota":0,"period":0},"memory":{"limit":0}}}`:                         DefaultSize,
		`"annotations":{"io.kubernetes.cri.sandbox-cpu-quota":"-1","io.kubernetes.cri.sandbox-memory":"0"}`: DefaultSize,
	} {
		if diff := cmp.Diff(want, plan(t, fields).Size); diff != "" {
			t.Errorf("%s: %s", fields, diff)
		}
	}
	o := defaults()
	o.Defaults = SizeOf(1, 512)
	p, err := Decode([]byte(simple), o)
	if err != nil || p.Size != (sizing.Demand{Shares: 1024, MemoryLimit: 352 << 20}) {
		t.Errorf("%+v, %v", p, err)
	}
	// The default is a VM of 2 CPUs and 1 GiB.
	size, err := sizing.SizeOf(DefaultSize, nil, sizing.Host{}, sizing.Default)
	if err != nil || size.VCPUs != 2 || size.MemoryMiB != 1024 || size.Quota != 0 {
		t.Errorf("%+v, %v", size, err)
	}
	// A further container has a demand of its own, and no VM.
	p = plan(t, `"annotations":{"io.kubernetes.cri-o.SandboxID":"pod"},`+limits)
	if p.Size != (sizing.Demand{}) || p.Demand.Quota != 150_000 || p.Demand.MemoryLimit != 64<<20 {
		t.Errorf("size %+v, demand %+v", p.Size, p.Demand)
	}
}
