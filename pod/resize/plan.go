package resize

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Change is a container with resources that must change.
type Change struct {
	Container *corev1.Container
	ID        string // the runtime's
	Want      *runtimeapi.LinuxContainerResources

	cpu, memory bool
	shrinks     bool // of its memory
}

// Compare returns the change of a container from have to want; found is false if there is none.
func Compare(container *corev1.Container, id string, have, want *runtimeapi.LinuxContainerResources) (one Change, found bool) {
	one = Change{
		Container: container, ID: id, Want: want,
		cpu:     want.CpuQuota != max(have.CpuQuota, 0) || want.CpuShares != have.CpuShares,
		memory:  want.MemoryLimitInBytes != have.MemoryLimitInBytes,
		shrinks: want.MemoryLimitInBytes > 0 && (have.MemoryLimitInBytes == 0 || want.MemoryLimitInBytes < have.MemoryLimitInBytes),
	}
	return one, one.cpu || one.memory
}

// Restarts reports whether the container's resizePolicy requires a restart for the change.
func (c *Change) Restarts() bool {
	for _, policy := range c.Container.ResizePolicy {
		if policy.RestartPolicy == corev1.RestartContainer &&
			(policy.ResourceName == corev1.ResourceCPU && c.cpu || policy.ResourceName == corev1.ResourceMemory && c.memory) {
			return true
		}
	}
	return false
}

// Plan is one attempt. A VM grows before its containers' limits, and shrinks after them.
type Plan struct {
	Generation     int64 // of the Pod
	Sandbox        string
	Size, Overhead *runtimeapi.LinuxContainerResources
	Grows          bool
	Changes        []Change
	Restarts       []string // ids of containers that must restart for their changes, after CarryOut
}

// CarryOut carries out the plan, up to the first failure. It refuses a memory limit below a container's usage, for
// which the kernel would kill the container.
func (p *Plan) CarryOut(ctx context.Context, runtime internalapi.RuntimeService) error {
	if p.Grows {
		if err := p.resizeSandbox(ctx, runtime); err != nil {
			return err
		}
	}
	for _, one := range p.Changes {
		if one.shrinks {
			if err := fits(ctx, runtime, one); err != nil {
				return err
			}
		}
		update := &runtimeapi.ContainerResources{Linux: one.Want}
		if one.Want.CpuQuota == 0 {
			update.Linux.CpuQuota = -1 // no limit; 0 would mean no change
		}
		if err := runtime.UpdateContainerResources(ctx, one.ID, update); err != nil {
			return fmt.Errorf("container %s: %w", one.Container.Name, err)
		}
	}
	if !p.Grows {
		return p.resizeSandbox(ctx, runtime)
	}
	return nil
}

func (p *Plan) resizeSandbox(ctx context.Context, runtime internalapi.RuntimeService) error {
	_, err := runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: p.Sandbox, Resources: p.Size, Overhead: p.Overhead,
	})
	return err // the runtime's error names the call
}

func fits(ctx context.Context, runtime internalapi.RuntimeService, one Change) error {
	stats, err := runtime.ContainerStats(ctx, one.ID)
	if err != nil {
		return fmt.Errorf("container %s: read its usage: %w", one.Container.Name, err)
	}
	used := stats.GetMemory().GetWorkingSetBytes().GetValue()
	if used > uint64(one.Want.MemoryLimitInBytes) {
		return fmt.Errorf("container %s: attempting to set its memory limit (%d) below current usage (%d)",
			one.Container.Name, one.Want.MemoryLimitInBytes, used)
	}
	return nil
}
