package engine

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"strconv"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/blocks"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// ResizePod resizes a running pod: its VM's memory, what the host lets it have, and
// what holds for its containers together. The containers' own limits are updated
// one by one: after this where they grow, before it where they shrink. More CPUs or more
// memory than the VM can be grown to is refused (ResourceExhausted), and nothing is
// changed. A nil overhead stays as it is.
func (e *Engine) ResizePod(ctx context.Context, id string, s Size, overhead *store.Overhead) error {
	p, err := e.find(id)
	if err != nil {
		return err
	}
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.done()
	return failure.Wrap(p.resize(ctx, s, overhead), "resize pod %s", shortid.Of(p.id))
}

func (p *pod) resize(ctx context.Context, s Size, overhead *store.Overhead) error {
	r := p.snapshot()
	size, err := p.newSize(&r, s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	c, err := p.live(ctx)
	if err != nil {
		return err
	}
	if overhead != nil {
		r.Overhead = *overhead
	}
	grows := size.MemoryMiB > r.MemoryMiB
	memory := r.Cgroup.Limits
	memory.Memory = group.MemoryLimits(size.MemoryMiB, r.Overhead).Memory
	if grows {
		p.e.groups.Limit(&r, memory)
	}
	limits := s.Limits
	limits.VCPUs = size.VCPUs
	if err := resizeMachine(ctx, c, limits, size.MemoryMiB); err != nil {
		return err // a host that allows more than there is does no harm
	}
	if !grows {
		p.e.groups.Limit(&r, memory)
	}
	p.e.groups.HoldCPU(&r, quota(size), size.Period, r.Overhead)
	return p.assume(func(record *store.Pod) {
		record.Cgroup, record.VCPUs, record.MemoryMiB = r.Cgroup, size.VCPUs, size.MemoryMiB
		record.Overhead, record.Sized = r.Overhead, true
	})
}

// newSize is the VM's with other resources, if it can have them.
func (p *pod) newSize(r *store.Pod, s Size) (sizing.Size, error) {
	size, err := p.e.sizeOf(s)
	if err != nil {
		return size, err
	}
	if most := r.Machine.CanHave(); size.VCPUs > most {
		return size, &sizing.TooLargeError{What: "CPUs", Want: int64(size.VCPUs), Have: int64(most), Machine: true}
	}
	// A VM that was made with more CPUs than it would be now is held to its share of them.
	size.VCPUs = max(size.VCPUs, r.Machine.VCPUs)
	size.MemoryMiB = max(size.MemoryMiB, r.Machine.Memory)
	if most := r.Machine.MaxMem; size.MemoryMiB > most {
		return size, &sizing.TooLargeError{What: "MiB of memory", Want: int64(size.MemoryMiB), Have: int64(most), Machine: true}
	}
	return size, nil
}

func resizeMachine(ctx context.Context, c *link.Conn, limits agentv1.PodLimits, memoryMiB int) error {
	raw, err := json.Marshal(limits)
	if err != nil {
		return err
	}
	_, err = c.Task.Update(ctx, &taskv3.UpdateTaskRequest{
		Resources:   &anypb.Any{TypeUrl: "io.bulkhead.PodLimits+json", Value: raw},
		Annotations: map[string]string{layout.MemoryAnnotation: strconv.Itoa(memoryMiB)},
	})
	return err
}

// UpdateContainer changes the limits of a running container, and with them the
// door's record of it. What is absent in resources stays as it is.
func (e *Engine) UpdateContainer(ctx context.Context, id string, resources *specs.LinuxResources, record json.RawMessage) error {
	c, err := e.findContainer(id)
	if err != nil {
		return err
	}
	return failure.Wrap(c.update(ctx, resources, record), "update container %s", c.Name)
}

func (c *container) update(ctx context.Context, resources *specs.LinuxResources, record json.RawMessage) error {
	shim, err := c.pod.shim()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(resources)
	if err != nil {
		return failure.Invalid("encode the resources: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	_, err = shim.Task.Update(ctx, &taskv3.UpdateTaskRequest{
		ID: c.ID, Resources: &anypb.Any{TypeUrl: "io.containerd.cgroups/runtime-spec/LinuxResources", Value: raw},
	})
	if err != nil {
		return err
	}
	quota, period := cpuOf(resources)
	c.pod.mu.Lock()
	was, wasPeriod := c.Quota, c.Period
	c.pod.mu.Unlock()
	if err := c.pod.updateCPU(was, wasPeriod, quota, period); err != nil {
		return err
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.store(func(r *store.Container) {
		r.Record = record
		if quota != 0 {
			r.Quota, r.Period = quota, period
		}
	})
}

// updateCPU follows the change of a container's limit: the pod's share changes by as
// much, or is without a limit from then on.
func (p *pod) updateCPU(was, wasPeriod, now, period int64) error {
	r := p.snapshot()
	whole := r.Cgroup.Limits.Period
	share := group.Share(&r, r.Overhead)
	if now == 0 || r.Cgroup.Limits.Quota == 0 || r.Sized {
		return nil // nothing is changed, there is no share, or it is told apart
	}
	share += scale(now, period, whole) - scale(was, wasPeriod, whole)
	if now < 0 || was <= 0 {
		share = 0
	}
	p.e.groups.HoldCPU(&r, max(share, 0), whole, r.Overhead)
	return p.assume(func(record *store.Pod) { record.Cgroup = r.Cgroup })
}

// defaultPeriod is the kernel's, in microseconds.
const defaultPeriod = 100_000

// scale is a quota of one period as a quota of another.
func scale(quota, own, period int64) int64 {
	if own <= 0 {
		own = defaultPeriod
	}
	return quota * period / own
}

// cpuOf is a container's share of the CPUs: negative is no limit, 0 is not stated.
func cpuOf(r *specs.LinuxResources) (quota, period int64) {
	if r == nil || r.CPU == nil {
		return 0, 0
	}
	if r.CPU.Quota != nil {
		quota = *r.CPU.Quota
	}
	if r.CPU.Period != nil {
		period = int64(min(*r.CPU.Period, math.MaxInt64))
	}
	return quota, period
}

// GrowVolume makes a named volume larger, also while a running pod has it, whose file system grows
// with it then. It never shrinks. The error of a volume that a pod has which does not run matches
// named.ErrInUse.
func (e *Engine) GrowVolume(ctx context.Context, name string, bytes int64) (named.Volume, error) {
	v, err := e.named.Grow(ctx, name, bytes)
	if !errors.Is(err, named.ErrInUse) {
		return v, err
	}
	path, pathErr := filepath.EvalSymlinks(e.named.Image(name))
	if _, check := e.named.Growable(name, bytes); pathErr != nil || check != nil {
		return v, errors.Join(check, pathErr)
	}
	p, b := e.holder(path, nil)
	if p == nil {
		return v, err
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	done, err := p.blocks.Turn(ctx, []store.Block{b})
	if err != nil {
		return v, err
	}
	defer done()
	// Another may have grown it while this one waited.
	if _, err := e.named.Growable(name, bytes); err != nil {
		return v, err
	}
	c, err := p.live(ctx)
	if err == nil {
		err = growVolume(ctx, c, b, scratch.Rounded(bytes))
	}
	if err != nil {
		return v, failure.Wrap(err, "grow volume %s in pod %s", name, shortid.Of(p.id))
	}
	return e.named.Get(name)
}

// holder is a running pod that has the block device at a path, but for one of them.
func (e *Engine) holder(path string, but *pod) (*pod, store.Block) {
	for _, p := range e.all() {
		if up, _ := (volumePod{p}).Up(); p == but || !up {
			continue
		}
		for _, b := range (blocksPod{p}).Blocks("") {
			if b.Path == path {
				return p, b
			}
		}
	}
	return nil, store.Block{}
}

// fillVolumes has the file systems of named volumes be as large as their disks: these may have
// grown since they were mounted last.
func (p *pod) fillVolumes(ctx context.Context, c *link.Conn, all []store.Block) error {
	for _, b := range all {
		volume, ok := containerv1.VolumeOf(b.Asked)
		if !ok || b.ReadOnly {
			continue
		}
		v, err := p.e.named.Get(volume)
		if err == nil {
			err = growVolume(ctx, c, b, v.Bytes)
		}
		if err != nil {
			return failure.Wrap(err, "volume %s", volume)
		}
	}
	return nil
}

func growVolume(ctx context.Context, c *link.Conn, b store.Block, bytes int64) error {
	_, err := c.Task.Update(ctx, &taskv3.UpdateTaskRequest{Annotations: map[string]string{
		layout.VolumeAnnotation: blocks.Name(b), layout.BytesAnnotation: strconv.FormatInt(bytes, 10),
	}})
	return err
}
