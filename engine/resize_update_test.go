package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// sized gives a pod a VM of 512 MiB and one CPU, which can grow to 4096 MiB and four CPUs, and a demand.
func sized(p *pod, asked sizing.Demand) {
	p.e.kinds.Host, p.e.kinds.Defaults = sizing.Host{CPUs: 8, MemoryMiB: 1 << 20}, sizing.Default
	p.record.VM.VCPUs, p.record.VM.MaxVCPUs = 1, 4
	p.record.VM.Memory, p.record.VM.MaxMem, p.record.MemoryMiB = 512, 4096, 512
	p.record.Asked = &store.Size{Demand: asked}
}

// TestUpdateContainer checks that a pod's CPU share follows its containers, unless the pod was resized as a whole.
func TestUpdateContainer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		share    int64 // the pod's, in 100 ms
		was, now int64 // the container's, in 100 ms and in 50 ms
		sized    bool
		errs     errs
		want     int64
		quota    int64 // that is stored
		period   int64
		code     codes.Code
	}{
		{name: "grows", share: 80_000, was: 30_000, now: 20_000, want: 90_000, quota: 20_000, period: 50_000},
		{name: "shrinks", share: 80_000, was: 30_000, now: 10_000, want: 70_000, quota: 10_000, period: 50_000},
		{name: "to nothing left", share: 30_000, was: 30_000, now: -1, quota: -1, period: 50_000},
		{name: "more than the pod has", share: 20_000, was: 60_000, now: 10_000, quota: 10_000, period: 50_000},
		{name: "no limit any more", share: 80_000, was: 30_000, now: -1, quota: -1, period: 50_000},
		{name: "had no limit", share: 80_000, was: -1, now: 10_000, quota: 10_000, period: 50_000},
		{name: "stated none", share: 80_000, now: 10_000, quota: 10_000, period: 50_000},
		{name: "not stated", share: 80_000, was: 30_000, want: 80_000, quota: 30_000, period: 100_000},
		{name: "of a pod that states nothing", was: 30_000, now: 10_000, want: 20_000, quota: 10_000, period: 50_000},
		{name: "of a pod with its own size", share: 80_000, was: 30_000, now: 10_000, sized: true, want: 80_000, quota: 10_000, period: 50_000},
		{
			name: "fails", share: 80_000, was: 30_000, now: 10_000, errs: errs{"Update": {errInjected}}, code: codes.Unknown,
			want: 80_000, quota: 30_000, period: 100_000,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			c := scriptedPod(t, s, ContainerRunning)
			grouped(t, c.pod, tc.share)
			sized(c.pod, sizing.Demand{Quota: tc.share, Period: 100_000})
			c.pod.record.Sized = tc.sized
			c.Quota, c.Period, c.Record = tc.was, 100_000, json.RawMessage(`"old"`)
			resources := &specs.LinuxResources{}
			if tc.now != 0 {
				period := uint64(50_000)
				resources.CPU = &specs.LinuxCPU{Quota: &tc.now, Period: &period}
			}
			err := c.pod.e.UpdateContainer(t.Context(), c.ID, resources, json.RawMessage(`"new"`))
			if codeOf(err) != tc.code {
				t.Errorf("%v", err)
			}
			limits := c.pod.snapshot().Cgroup.Limits
			if got := max(limits.Quota-100_000, 0); got != tc.want {
				t.Errorf("the pod's share is %d, not %d: %+v", got, tc.want, limits)
			}
			record := map[bool]string{true: `"new"`, false: `"old"`}[err == nil]
			if c.Quota != tc.quota || c.Period != tc.period || string(c.Record) != record {
				t.Errorf("%d of %d, record %s", c.Quota, c.Period, c.Record)
			}
			if calls := s.calls(); len(calls) != 1 || !strings.HasPrefix(calls[0], "Update "+c.ID) {
				t.Errorf("%q", calls)
			}
		})
	}
	c := scriptedPod(t, &scripted{}, ContainerRunning)
	c.pod.conn = nil
	if err := c.pod.e.UpdateContainer(t.Context(), c.ID, nil, nil); codeOf(err) != codes.FailedPrecondition {
		t.Errorf("without a shim: %v", err)
	}
}

// TestUpdateMemory checks that the VM grows before a container's limit and shrinks after it, and that an impossible
// limit changes nothing.
func TestUpdateMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tc := range []struct {
		name  string
		asked int64 // MiB of the pod
		whole bool  // a limit of the whole pod
		was   int64
		now   int64
		errs  errs
		code  codes.Code
		calls string // P is the pod's update, C is the container's
		want  int    // MiB of the VM
	}{
		{name: "grows", now: 1024, calls: "PC", want: 1280},
		{name: "grows further", was: 1024, now: 2048, calls: "PC", want: 2304},
		{name: "shrinks", was: 3000, now: 1024, calls: "CP", want: 1280},
		{name: "to no limit", was: 3000, now: -1, calls: "CP", want: 512},
		{name: "fits", now: 300, calls: "C", want: 512},
		{name: "as much as there can be", now: 3936, calls: "PC", want: 4096},
		{name: "more than the VM can be grown to", now: 3937, code: codes.ResourceExhausted, want: 512},
		{name: "more than the host has", now: 1 << 20, code: codes.ResourceExhausted, want: 512},
		{name: "of a pod that states its memory", asked: 600, was: 300, now: 1300, calls: "PC", want: 1792},
		{name: "of a pod with a limit as a whole", asked: 600, whole: true, was: 300, now: 400, calls: "C", want: 768},
		{name: "the VM does not grow", now: 1024, errs: errs{"Update": {errInjected}}, code: codes.Unknown, calls: "P", want: 512},
		{name: "the container's fails", now: 1024, errs: errs{"Update": {nil, errInjected}}, code: codes.Unknown, calls: "PCP", want: 512},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{}
			c := scriptedPod(t, s, ContainerRunning)
			grouped(t, c.pod, 0)
			sized(c.pod, sizing.Demand{MemoryLimit: tc.asked * mib})
			if tc.whole {
				c.pod.record.Asked.Limits.MemoryBytes = tc.asked * mib
			}
			c.Memory = tc.was * mib
			if err := c.pod.grow(t.Context()); err != nil { // as at its creation
				t.Fatal(err)
			}
			s.calls()
			s.errs = tc.errs
			limit := tc.now * mib
			resources := &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
			if err := c.pod.e.UpdateContainer(t.Context(), c.ID, resources, nil); codeOf(err) != tc.code {
				t.Errorf("%v", err)
			}
			var calls strings.Builder
			for _, call := range s.calls() {
				calls.WriteString(map[bool]string{true: "C", false: "P"}[strings.HasPrefix(call, "Update "+c.ID)])
			}
			if r := c.pod.snapshot(); calls.String() != tc.calls || r.MemoryMiB != tc.want {
				t.Errorf("calls %s, %d MiB; want %s, %d", calls.String(), r.MemoryMiB, tc.calls, tc.want)
			}
			stored, err := c.pod.e.store.Pod(c.pod.id)
			if tc.calls != "" && tc.calls != "C" && tc.code == codes.OK && (err != nil || stored.MemoryMiB != tc.want) {
				t.Errorf("the record: %+v, %v", stored, err)
			}
			if want := map[bool]int64{true: limit, false: tc.was * mib}[tc.code == codes.OK]; c.Memory != want {
				t.Errorf("the container's demand is %d", c.Memory)
			}
		})
	}
}

// TestFit checks that containers in creation count, and that ended ones do not.
func TestFit(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	c := scriptedPod(t, s, ContainerRunning)
	p := c.pod
	grouped(t, p, 0)
	sized(p, sizing.Demand{})
	c.Memory, c.Quota, c.Period = 800<<20, 150_000, 100_000
	made := (&container{pod: p, Stored: store.Stored{Container: store.Container{ID: "making", Memory: 400 << 20}}}).addCreating()
	if err := p.grow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := p.snapshot(); r.MemoryMiB != 1408 || r.VCPUs != 2 {
		t.Errorf("two: %d MiB, %d CPUs", r.MemoryMiB, r.VCPUs)
	}
	made()
	p.refit(t.Context())
	if r := p.snapshot(); r.MemoryMiB != 1024 || r.VCPUs != 2 {
		t.Errorf("one: %d MiB, %d CPUs", r.MemoryMiB, r.VCPUs)
	}
	c.Exit = &store.Exit{}
	p.refit(t.Context())
	if r := p.snapshot(); r.MemoryMiB != 512 || r.VCPUs != 1 {
		t.Errorf("without containers: %d MiB, %d CPUs", r.MemoryMiB, r.VCPUs)
	}
	s.calls()
	c.Exit, p.record.Asked = nil, nil
	if err := p.grow(t.Context()); err != nil || len(s.calls()) != 0 {
		t.Errorf("pod of an earlier version: %v", err)
	}
	sized(p, sizing.Demand{})
	c.Quota = 401_000
	if err := p.grow(t.Context()); codeOf(err) != codes.ResourceExhausted || !slices.Equal(s.calls(), nil) {
		t.Errorf("more CPUs than the VM can have: %v", err)
	}
}

// TestOutOfMemory checks that the exit message names the exceeded limit.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		limit, pod int64 // MiB
		want       string
	}{
		{"its own", 64, 0, "it needed more memory than its limit of 64 MiB"},
		{"its pod's", 0, 300, "it needed more memory than its pod's limit of 300 MiB"},
		{"none", 0, 0, "needed more than its VM of 512 MiB has: state a limit, or set another default (BULKHEAD_DEFAULT_MEMORY"},
	} {
		s := &scripted{}
		c := scriptedPod(t, s, ContainerRunning)
		sized(c.pod, sizing.Demand{})
		c.pod.record.Asked.Limits.MemoryBytes, c.Memory = tc.pod<<20, tc.limit<<20
		s.says(c, ContainerExited)
		s.status.Containers[0].Reason = "OOMKilled"
		if err := c.pod.reconcile(t.Context(), c.pod.conn); err != nil {
			t.Fatal(err)
		}
		if got := c.pod.state().Containers[0].Exit; got == nil || !strings.Contains(got.Message, tc.want) {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}
