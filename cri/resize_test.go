package cri

import (
	"errors"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

func TestUpdatePodSandboxResources(t *testing.T) {
	w := enginetest.New()
	s := fakeService(t, w, testOptions(t, enginetest.Roots(t)))
	config := podConfig("web")
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100 << 20, CpuQuota: 50_000, CpuPeriod: 100_000}
	id, err := s.RunPodSandboxWith(t.Context(), config, "", runtimev1.PodOptions{WholeMemory: true, WholeCPU: true})
	if err != nil {
		t.Fatal(err)
	}
	update := func(memory, quota int64) error {
		_, err := s.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{
			PodSandboxId: id, Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory, CpuQuota: quota, CpuPeriod: 100_000},
		})
		return err
	}
	w.Forget()
	if err := update(1000<<20, 70_000); err != nil {
		t.Fatal(err)
	}
	want := []string{`Resize 1280 {"memoryBytes":1048576000,"cpuQuota":70000,"cpuPeriod":100000,"vcpus":1}`}
	if diff := cmp.Diff(want, w.Calls()); diff != "" {
		t.Error(diff)
	}
	record := func() *store.Pod {
		t.Helper()
		r, err := s.store.Pod(id)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := record(); r.MemoryMiB != 1280 || !r.Sized {
		t.Errorf("record %+v", r)
	}
	for name, call := range map[string]func() error{
		"CPUs":   func() error { return update(100<<20, 6_400_000) },
		"memory": func() error { return update(1<<50, 50_000) },
	} {
		if err := call(); !errors.Is(err, errdefs.ErrResourceExhausted) || grpccode.Of(err) != codes.ResourceExhausted {
			t.Errorf("too many %s: %v", name, err)
		}
	}
	if r := record(); r.MemoryMiB != 1280 {
		t.Errorf("a refused resize left %d MiB", r.MemoryMiB)
	}
	nobody := &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: "nobody"}
	if _, err := s.UpdatePodSandboxResources(t.Context(), nobody); !failure.NotFound(err) {
		t.Errorf("of no pod: %v", err)
	}
}

func TestOverhead(t *testing.T) {
	for _, test := range []struct {
		name string
		r    *runtimeapi.LinuxContainerResources
		want store.Overhead
	}{
		{name: "none"},
		{
			name: "both", r: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 30, CpuQuota: 50_000, CpuPeriod: 100_000},
			want: store.Overhead{Memory: 1 << 30, CPU: 0.5},
		},
		{name: "no period", r: &runtimeapi.LinuxContainerResources{CpuQuota: 50_000}},
	} {
		if got := overheadOf(test.r); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}
