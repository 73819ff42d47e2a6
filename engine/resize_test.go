package engine

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// grouped gives a pod a cgroup without controllers, with a share of the CPUs; 0 means all of them. The share
// excludes the VM's overhead.
func grouped(t *testing.T, p *pod, share int64) {
	t.Helper()
	p.record.Overhead = store.Overhead{CPU: 1}
	p.record.Cgroup = store.Cgroup{Dirs: []string{t.TempDir()}}
	if share > 0 {
		p.record.Cgroup.Limits = hostcgroup.Limits{Quota: share + 100_000, Period: 100_000}
	}
}

// TestResizePod checks that the host's limits are raised before the VM grows and lowered after it shrinks, and that
// a failed resize stores no changes.
func TestResizePod(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tc := range []struct {
		name     string
		to       int64 // MiB, the limits of the containers
		cpus     int64 // microseconds in 100 ms
		overhead *store.Overhead
		errs     errs
		code     codes.Code
		want     int  // MiB
		vcpus    int  // online CPUs, if not those at the start
		before   bool // the limit on the host is changed before the VM is
	}{
		{name: "grows", to: 1024, want: 1280, before: true},
		{name: "as it is", to: 512, want: 768},
		{name: "shrinks", to: 256, want: 512},
		{name: "no less than it was made with", to: 1, want: 512},
		{name: "as much as there can be", to: 1888, want: 2048, before: true},
		{name: "more than there can be", to: 1889, want: 768, code: codes.ResourceExhausted},
		{name: "all CPUs", to: 512, cpus: 200_000, want: 768},
		{name: "more CPUs than it was made with", to: 512, cpus: 200_001, want: 768, vcpus: 4},
		{name: "a CPU too many", to: 512, cpus: 400_001, want: 768, code: codes.ResourceExhausted},
		{name: "with another overhead", to: 512, want: 768, overhead: &store.Overhead{Memory: 300 * mib, CPU: 2}},
		{name: "fails to grow", to: 1024, errs: errs{"Update": {errInjected}}, code: codes.Unknown, want: 768, before: true},
		{name: "fails to shrink", to: 256, errs: errs{"Update": {errInjected}}, code: codes.Unknown, want: 768},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: tc.errs}
			c := scriptedPod(t, s, ContainerRunning)
			p := c.pod
			p.e.kinds.Host = sizing.Host{CPUs: 8, MemoryMiB: 1 << 20}
			grouped(t, p, 0)
			p.record.VM.MaxVCPUs = 4
			p.record.VM.VCPUs, p.record.VM.Memory, p.record.VM.MaxMem, p.record.MemoryMiB = 2, 512, 2048, 768
			limit, before := filepath.Join(p.record.Cgroup.Dirs[0], "memory.limit_in_bytes"), false
			if err := os.WriteFile(limit, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s.on = map[string]func(){"Update": func() { before = written(t, limit) }}
			var size Size
			size.MemoryLimit = tc.to * mib
			size.Quota, size.Period = tc.cpus, 100_000
			err := p.e.ResizePod(t.Context(), p.id, size, tc.overhead)
			if codeOf(err) != tc.code {
				t.Errorf("%v", err)
			}
			r := p.snapshot()
			if r.MemoryMiB != tc.want || r.Sized != (err == nil) {
				t.Errorf("%d MiB, sized %v", r.MemoryMiB, r.Sized)
			}
			if want := max(tc.vcpus, 2); err == nil && r.VCPUs != want || err != nil && r.VCPUs != 0 {
				t.Errorf("%d CPUs, not %d", r.VCPUs, want)
			}
			if before != tc.before || written(t, limit) != (tc.before || err == nil) {
				t.Errorf("the host's limit is changed before: %v, at all: %v", before, written(t, limit))
			}
			if tc.overhead != nil && r.Overhead != *tc.overhead {
				t.Errorf("overhead %+v", r.Overhead)
			}
		})
	}
	s := &scripted{}
	c := scriptedPod(t, s, ContainerRunning)
	c.pod.record.Exit = "it ended"
	c.pod.record.VM.VCPUs, c.pod.record.VM.MaxMem = 8, 1<<20
	if err := c.pod.e.ResizePod(t.Context(), c.pod.id, Size{}, nil); codeOf(err) != codes.FailedPrecondition {
		t.Errorf("ResizePod of a pod that has ended: got %v, want code %s", err, codes.FailedPrecondition)
	}
	if err := c.pod.e.ResizePod(t.Context(), "gone", Size{}, nil); codeOf(err) != codes.NotFound {
		t.Errorf("ResizePod of an unknown pod: got %v, want code %s", err, codes.NotFound)
	}
	s.same(t)
}

// written reports whether a limit has been set.
func written(t *testing.T, path string) bool {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return len(b) > 0
}
