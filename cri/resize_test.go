package cri

import (
	"context"
	"errors"
	"fmt"
	"testing"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

func (f fakeTask) Update(ctx context.Context, r *taskv3.UpdateTaskRequest) (*emptypb.Empty, error) {
	name := fmt.Sprintf("Update %s %s %s", r.ID, r.Annotations[layout.MemoryAnnotation], r.Resources.GetValue())
	if err := f.w.call(ctx, name); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

func TestUpdatePodSandboxResources(t *testing.T) {
	w := newWorld()
	s := fakeEngine(t, w, testOptions(t, testRoots(t)))
	config := podConfig("web")
	config.Annotations = map[string]string{annotations.PodLimits: "memory,cpu"}
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100 << 20, CpuQuota: 50_000, CpuPeriod: 100_000}
	id, err := s.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	update := func(memory, quota int64) error {
		_, err := s.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{
			PodSandboxId: id, Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory, CpuQuota: quota, CpuPeriod: 100_000},
		})
		return err
	}
	w.calls = nil
	if err := update(1000<<20, 70_000); err != nil {
		t.Fatal(err)
	}
	want := []string{`Update  1280 {"memoryBytes":1048576000,"cpuQuota":70000,"cpuPeriod":100000}`}
	if diff := cmp.Diff(want, w.calls); diff != "" {
		t.Error(diff)
	}
	p, err := s.find(id)
	if err != nil {
		t.Fatal(err)
	}
	if r := p.snapshot(); r.MemoryMiB != 1280 || !r.Sized {
		t.Errorf("record %+v", r)
	}
	for name, call := range map[string]func() error{
		"CPUs":   func() error { return update(100<<20, 6_400_000) },
		"memory": func() error { return update(1<<50, 50_000) },
	} {
		if err := call(); !errors.Is(err, sizing.ErrTooLarge) || code(err) != codes.ResourceExhausted {
			t.Errorf("too many %s: %v", name, err)
		}
	}
	if r := p.snapshot(); r.MemoryMiB != 1280 {
		t.Errorf("a resize that was refused has left %d MiB", r.MemoryMiB)
	}
	if _, err := s.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: "nobody"}); !notFound(err) {
		t.Errorf("of no pod: %v", err)
	}
}

func TestOverhead(t *testing.T) {
	for name, test := range map[string]struct {
		r    *runtimeapi.LinuxContainerResources
		want overhead
	}{
		"none":  {nil, overhead{overheadMemory, overheadCPU}},
		"less":  {&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20, CpuQuota: 1000, CpuPeriod: 100_000}, overhead{overheadMemory, overheadCPU}},
		"more":  {&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 30, CpuQuota: 50_000, CpuPeriod: 100_000}, overhead{1 << 30, 0.5}},
		"unset": {&runtimeapi.LinuxContainerResources{CpuQuota: 50_000}, overhead{overheadMemory, overheadCPU}},
	} {
		if got := overheadOf(test.r); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
