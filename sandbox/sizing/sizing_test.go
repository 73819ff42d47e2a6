package sizing

import (
	"errors"
	"math"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

const mib = 1 << 20

func milli(limit, request int64) Demand {
	return Demand{Quota: limit * 100, Period: 100_000, Shares: uint64(request * 1024 / 1000)}
}

func memory(limit int64) Demand { return Demand{MemoryLimit: limit} }

func TestVCPUs(t *testing.T) {
	host := Host{CPUs: 64, MemoryMiB: 1 << 20}
	for _, tt := range []struct {
		name  string
		in    []Demand
		want  int
		quota int64
	}{
		{"no container", nil, 1, 0},
		{"nothing asked", []Demand{{}}, 1, 0},
		{"half", []Demand{milli(500, 0)}, 1, 50_000},
		{"half and half is one", []Demand{milli(500, 0), milli(500, 0)}, 1, 100_000},
		{"a little more is two", []Demand{milli(500, 0), milli(501, 0)}, 2, 100_100},
		{"three thirds are one", []Demand{{Quota: 1, Period: 3}, {Quota: 1, Period: 3}, {Quota: 1, Period: 3}}, 1, 100_000},
		{"three is a class of four", []Demand{milli(3000, 0)}, 4, 300_000},
		{"five is a class of eight", []Demand{milli(5000, 0)}, 8, 500_000},
		{"64", []Demand{milli(64000, 0)}, 64, 6_400_000},
		{"other period", []Demand{{Quota: 50_000, Period: 20_000}}, 4, 250_000},
		{"no period", []Demand{{Quota: 200_000}}, 2, 200_000},
		{"limit before request", []Demand{milli(1000, 4000)}, 1, 100_000},
		{"shares without a quota", []Demand{{Shares: 2048}}, 2, 0},
		{"shares rounded up", []Demand{{Shares: 1025}}, 2, 0},
		{"the kubelet's least shares are no request", []Demand{{Shares: 2}}, 1, 0},
		{"negative quota is none", []Demand{{Quota: -1, Period: 100_000, Shares: 3072}}, 4, 0},
		{"one without a limit lifts the pod's", []Demand{milli(1000, 0), {Shares: 1024}}, 2, 0},
	} {
		got, err := SizeOf(Demand{}, tt.in, host, Default)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got.VCPUs != tt.want || got.Quota != tt.quota {
			t.Errorf("%s: %d vCPUs and a quota of %d, not %d and %d", tt.name, got.VCPUs, got.Quota, tt.want, tt.quota)
		}
	}
}

func TestMemory(t *testing.T) {
	host := Host{CPUs: 2, MemoryMiB: 1 << 20}
	for _, tt := range []struct {
		name string
		in   []Demand
		want int
	}{
		// 160 MiB are the guest's overhead.
		{"nothing asked", []Demand{{}}, 512},
		{"no container", nil, 512},
		{"512 bytes are not 512 MiB", []Demand{memory(512)}, 256},
		{"least", []Demand{memory(1)}, 256},
		{"exact", []Demand{memory(352 * mib)}, 512},
		{"one byte more", []Demand{memory(352*mib + 1)}, 640},
		{"sum of limits", []Demand{memory(200 * mib), memory(300 * mib)}, 768},
		{"one states nothing", []Demand{memory(300 * mib), {}}, 896},
		{"two state nothing", []Demand{{}, {}}, 512},
		{"negative is no limit", []Demand{memory(-1)}, 512},
		{"unlimited", []Demand{memory(math.MaxInt64)}, 512},
		{"unlimited by pages", []Demand{memory(math.MaxInt64 - 4095)}, 512},
	} {
		got, err := SizeOf(Demand{}, tt.in, host, Default)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got.MemoryMiB != tt.want {
			t.Errorf("%s: %d MiB, not %d", tt.name, got.MemoryMiB, tt.want)
		}
		if got.MemoryMiB%MemoryAlign != 0 {
			t.Errorf("%s: %d MiB is no multiple of %d", tt.name, got.MemoryMiB, MemoryAlign)
		}
	}
}

// TestWholeHost: a pod may demand the whole host, and any size if the host's capacity is unknown.
func TestWholeHost(t *testing.T) {
	for _, tt := range []struct {
		name string
		host Host
		in   Demand
		want Size
	}{
		{"all CPUs", Host{CPUs: 2, MemoryMiB: 512}, milli(2000, 0), Size{VCPUs: 2, MemoryMiB: 512, Quota: 200_000, Period: 100_000}},
		{"all memory", Host{CPUs: 1, MemoryMiB: 1024}, memory(864 * mib), Size{VCPUs: 1, MemoryMiB: 1024, Period: 100_000}},
		{"unknown CPUs", Host{MemoryMiB: 512}, milli(64000, 0), Size{VCPUs: 64, MemoryMiB: 512, Quota: 6_400_000, Period: 100_000}},
		{"unknown memory", Host{CPUs: 1}, memory(1 << 40), Size{VCPUs: 1, MemoryMiB: 1<<20 + 256, Period: 100_000}},
	} {
		if got, err := SizeOf(tt.in, nil, tt.host, Default); err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
	pages := Demand{MemoryLimit: 352 * mib, HugePages: 1}
	if got, err := SizeOf(pages, nil, Host{}, Default); err != nil || got.MemoryMiB != 640 {
		t.Errorf("huge pages come on top of the memory: %+v, %v", got, err)
	}
}

// TestTooLarge: the error for more memory or CPU than the host has names both numbers.
func TestTooLarge(t *testing.T) {
	host := Host{CPUs: 2, MemoryMiB: 1024}
	for _, tt := range []struct {
		name string
		in   []Demand
		want *TooLargeError
	}{
		{"CPUs", []Demand{milli(2001, 0)}, &TooLargeError{What: "CPUs", Want: 3, Have: 2}},
		{"CPUs requested", []Demand{{Shares: 4096}}, &TooLargeError{What: "CPUs", Want: 4, Have: 2}},
		{"memory", []Demand{memory(1024 * mib)}, &TooLargeError{What: "MiB of memory", Want: 1280, Have: 1024}},
		{"memory in sum", []Demand{memory(500 * mib), memory(500 * mib)}, &TooLargeError{What: "MiB of memory", Want: 1280, Have: 1024}},
	} {
		_, err := SizeOf(Demand{}, tt.in, host, Default)
		var got *TooLargeError
		if !errors.As(err, &got) || !errors.Is(err, errdefs.ErrResourceExhausted) {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
	huge := []Demand{memory(unlimited - 1), memory(unlimited - 1), memory(unlimited - 1)}
	if _, err := SizeOf(Demand{}, huge, host, Default); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Errorf("a sum beyond 64 bits: %v", err)
	}
	most := Demand{Quota: math.MaxInt64, Period: 1}
	if _, err := SizeOf(Demand{}, []Demand{most, most}, host, Default); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Errorf("CPUs beyond 64 bits: %v", err)
	}
	if _, err := SizeOf(Demand{Shares: 1 << 30}, nil, Host{}, Default); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Errorf("2^30 shares: %v", err)
	}
	if _, err := SizeOf(milli(65000, 0), nil, Host{CPUs: 128, MemoryMiB: 4096}, Default); !errors.Is(err, errdefs.ErrResourceExhausted) {
		t.Errorf("more than the largest class: %v", err)
	}
	// A default never makes a pod too large.
	if got, err := SizeOf(Demand{}, nil, Host{CPUs: 1, MemoryMiB: 4096}, Defaults{VCPUs: 4, MemoryMiB: 512}); err != nil || got.VCPUs != 1 {
		t.Errorf("default of 4 vCPUs on one: %+v, %v", got, err)
	}
}

// TestPodAndContainers: a resource that the pod states counts, whatever its containers demand.
func TestPodAndContainers(t *testing.T) {
	host := Host{CPUs: 64, MemoryMiB: 1 << 20}
	large := []Demand{
		{Quota: 300_000, Period: 100_000, MemoryLimit: 3 << 30},
		{Quota: 100_000, Period: 100_000, MemoryLimit: 1 << 30},
	}
	for _, tt := range []struct {
		name string
		pod  Demand
		want Size
	}{
		{"neither", Demand{}, Size{VCPUs: 4, MemoryMiB: 4352, Quota: 400_000, Period: 100_000}},
		{"memory", memory(352 * mib), Size{VCPUs: 4, MemoryMiB: 512, Quota: 400_000, Period: 100_000}},
		{"CPUs", milli(500, 0), Size{VCPUs: 1, MemoryMiB: 4352, Quota: 50_000, Period: 100_000}},
		{"CPUs requested", Demand{Shares: 2048}, Size{VCPUs: 2, MemoryMiB: 4352, Period: 100_000}},
		{"no limit of CPUs", Demand{Quota: -1}, Size{VCPUs: 1, MemoryMiB: 4352, Period: 100_000}},
		{"huge pages", Demand{HugePages: 512 * mib}, Size{VCPUs: 4, MemoryMiB: 4864, Quota: 400_000, Period: 100_000}},
	} {
		got, err := SizeOf(tt.pod, large, host, Default)
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

// TestDefaultsFor: the default memory is half of the host's, within bounds, unless it is configured.
func TestDefaultsFor(t *testing.T) {
	for _, tt := range []struct{ host, chosen, want int }{
		{host: 24105, want: 2048},
		{host: 4096, want: 2048},
		{host: 3000, want: 1408},
		{host: 2048, want: 1024},
		{host: 900, want: 512},
		{host: 400, want: 384},
		{want: 512},
		{host: 24105, chosen: 4000, want: 3968},
		{host: 24105, chosen: 300, want: 256},
		{host: 1000, chosen: 4096, want: 896},
	} {
		host := Host{CPUs: 1, MemoryMiB: tt.host}
		got, err := SizeOf(Demand{}, nil, host, DefaultsFor(host, tt.chosen, 0))
		if err != nil || got.MemoryMiB != tt.want || got.VCPUs != 1 {
			t.Errorf("a host of %d MiB, %d chosen: %+v, %v, want %d", tt.host, tt.chosen, got, err, tt.want)
		}
	}
	if d := DefaultsFor(Host{CPUs: 4}, 0, 3); d.VCPUs != 3 {
		t.Errorf("%+v", d)
	}
}
