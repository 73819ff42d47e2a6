package cri

import (
	"context"
	"encoding/json"
	"strconv"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// UpdatePodSandboxResources resizes a running pod: its machine's memory, what
// the host lets it have, and what holds for its containers together. The
// containers' own limits are updated one by one: after this where they grow,
// before it where they shrink. A machine keeps the CPUs that it was made with:
// more of them than that, or more memory than it can be grown to, is refused
// (ResourceExhausted), and nothing is changed.
func (s *Service) UpdatePodSandboxResources(ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	p, err := s.find(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	defer p.done()
	if err := p.resize(ctx, req); err != nil {
		return nil, fail(err, "resize pod %s", short(p.id))
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

func (p *pod) resize(ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) error {
	config := proto.CloneOf(p.config)
	if config.Linux == nil {
		config.Linux = &runtimeapi.LinuxPodSandboxConfig{}
	}
	config.Linux.Resources = req.GetResources()
	if req.GetOverhead() != nil {
		config.Linux.Overhead = req.GetOverhead()
	}
	r := p.snapshot()
	size, err := p.newSize(&r, config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := p.live(ctx)
	if err != nil {
		return err
	}
	o := overheadOf(config.GetLinux().GetOverhead())
	grows := size.MemoryMiB > r.MemoryMiB
	memory := r.Cgroup.Limits
	memory.Memory = memoryLimits(size.MemoryMiB, o).Memory
	if grows {
		p.s.limitGroup(&r, memory)
	}
	if err := resizeMachine(ctx, c, podLimits(config), size.MemoryMiB); err != nil {
		return err // a host that allows more than there is does no harm
	}
	if !grows {
		p.s.limitGroup(&r, memory)
	}
	p.s.holdCPU(&r, quota(size), size.Period, o)
	return p.assume(func(record *store.Pod) {
		record.Cgroup, record.MemoryMiB, record.Sized = r.Cgroup, size.MemoryMiB, true
	})
}

// newSize is the machine's with other resources, if it can have them.
func (p *pod) newSize(r *store.Pod, config *runtimeapi.PodSandboxConfig) (sizing.Size, error) {
	size, err := sizing.SizeOf(demands(config), p.s.host, p.s.sizing())
	if err != nil {
		return size, err
	}
	if size.VCPUs > r.Machine.VCPUs {
		return size, &sizing.TooLargeError{What: "CPUs", Want: int64(size.VCPUs), Have: int64(r.Machine.VCPUs), Machine: true}
	}
	// A machine that has more CPUs than it would be made with now is held to its
	// share of them.
	size.VCPUs = r.Machine.VCPUs
	size.MemoryMiB = max(size.MemoryMiB, r.Machine.Memory)
	if most := r.Machine.MaxMem; size.MemoryMiB > most {
		return size, &sizing.TooLargeError{What: "MiB of memory", Want: int64(size.MemoryMiB), Have: int64(most), Machine: true}
	}
	return size, nil
}

func resizeMachine(ctx context.Context, c *conn, limits agentv1.PodLimits, memoryMiB int) error {
	raw, err := json.Marshal(limits)
	if err != nil {
		return err
	}
	_, err = c.task.Update(ctx, &taskv3.UpdateTaskRequest{
		Resources:   &anypb.Any{TypeUrl: "io.bulkhead.PodLimits+json", Value: raw},
		Annotations: map[string]string{layout.MemoryAnnotation: strconv.Itoa(memoryMiB)},
	})
	return err
}
