package engine

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/blocks"
	"github.com/bulkhead-project/bulkhead/engine/demand"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// ResizePod resizes a running pod: its VM's memory, its limits on the host, and the limits of its containers
// together. The caller updates the containers' own limits one by one: after this where they grow, before it where
// they shrink. ResizePod refuses sizes that the VM cannot grow to (ResourceExhausted), and changes nothing then. A
// nil overhead keeps the old one.
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
	size, err := p.e.kinds.SizeOf(s.Demand, nil)
	if err != nil {
		return err
	}
	r := p.snapshot()
	if err := within(&size, r.VM); err != nil {
		return err
	}
	if overhead != nil {
		r.Overhead = *overhead
	}
	r.Asked, r.Sized = &s, true
	return p.resizeTo(ctx, &r, size)
}

// within raises a size to the size that a VM started with. It returns a *sizing.TooLargeError if the VM cannot grow
// to the size.
func within(size *sizing.Size, m hypervisor.VMConfig) error {
	if most := m.CanHave(); size.VCPUs > most {
		return &sizing.TooLargeError{What: "CPUs", Want: int64(size.VCPUs), Have: int64(most), VM: true}
	}
	// A VM with more CPUs than the size needs is limited to its share of them.
	size.VCPUs = max(size.VCPUs, m.VCPUs)
	size.MemoryMiB = max(size.MemoryMiB, m.Memory)
	if size.MemoryMiB > m.MaxMem {
		return &sizing.TooLargeError{What: "MiB of memory", Want: int64(size.MemoryMiB), Have: int64(m.MaxMem), VM: true}
	}
	return nil
}

// resizeTo resizes the VM and its cgroup on the host, and stores next with the size. It raises the host's limits
// before the VM grows, and lowers them after the VM has shrunk. The caller holds op.
func (p *pod) resizeTo(ctx context.Context, next *store.Pod, size sizing.Size) error {
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	c, err := p.live(ctx)
	if err != nil {
		return err
	}
	grows := size.MemoryMiB > next.MemoryMiB
	memory := next.Cgroup.Limits
	memory.Memory = group.MemoryLimits(size.MemoryMiB, next.Overhead).Memory
	if grows {
		p.e.groups.Limit(next, memory)
	}
	limits := next.Asked.Limits
	limits.VCPUs = size.VCPUs
	if err := resizeVM(ctx, c, limits, size.MemoryMiB); err != nil {
		return err // a higher limit on the host is harmless
	}
	if !grows {
		p.e.groups.Limit(next, memory)
	}
	p.e.groups.HoldCPU(next, quota(size), size.Period, next.Overhead)
	return p.setState(func(record *store.Pod) {
		record.Cgroup, record.VCPUs, record.MemoryMiB = next.Cgroup, size.VCPUs, size.MemoryMiB
		record.Overhead, record.Asked, record.Sized = next.Overhead, next.Asked, next.Sized
	})
}

func resizeVM(ctx context.Context, c *link.Conn, limits agentv1.PodLimits, memoryMiB int) error {
	raw, err := json.Marshal(limits)
	if err != nil {
		return err
	}
	_, err = c.Ext.Resize(ctx, &shimv1.ResizeRequest{Limits: raw, MemoryMib: uint32(memoryMiB)})
	return err
}

// UpdateContainer changes the limits of a running container and the door's record of it. Limits that are absent in
// resources stay. The pod grows before its container and shrinks after it. UpdateContainer refuses sizes that the
// VM cannot grow to (ResourceExhausted), and changes nothing then.
func (e *Engine) UpdateContainer(ctx context.Context, id string, resources *specs.LinuxResources, record json.RawMessage) error {
	c, err := e.findContainer(id)
	if err != nil {
		return err
	}
	if err := c.pod.acquire(ctx); err != nil {
		return err
	}
	defer c.pod.done()
	return failure.Wrap(c.update(ctx, resources, record), "update container %s", c.Name)
}

func (c *container) update(ctx context.Context, resources *specs.LinuxResources, record json.RawMessage) error {
	p := c.pod
	shim, err := p.shim()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(resources)
	if err != nil {
		return failure.Invalid("encode the resources: %v", err)
	}
	restore := c.ask(demand.Of(resources, c.demand()))
	if err := p.fit(ctx, false); err != nil {
		restore()
		return err
	}
	callCtx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	_, err = shim.Task.Update(callCtx, &taskv3.UpdateTaskRequest{
		ID: c.ID, Resources: &anypb.Any{TypeUrl: "io.containerd.cgroups/runtime-spec/LinuxResources", Value: raw},
	})
	if err != nil {
		restore()
	} else {
		p.mu.Lock()
		err = c.store(func(r *store.Container) { r.Record = record })
		p.mu.Unlock()
	}
	return errors.Join(err, p.fit(ctx, true))
}

// fit grows the pod to the needs of its running and created containers, and shrinks it if shrink is set. A pod with
// stated resources is not sized by the sum of its containers. A pod that was resized as a whole keeps its size. fit
// returns a *sizing.TooLargeError if the VM cannot grow to the size. The caller holds op.
func (p *pod) fit(ctx context.Context, shrink bool) error {
	r := p.snapshot()
	if r.Asked == nil || r.Sized {
		return nil
	}
	least, err := p.e.kinds.SizeOf(r.Asked.Demand, nil)
	if err != nil {
		return err
	}
	size, err := p.e.kinds.SizeOf(r.Asked.Demand, p.demands())
	if err != nil {
		return err
	}
	size.MemoryMiB = max(size.MemoryMiB, least.MemoryMiB)
	if err := within(&size, r.VM); err != nil {
		return err
	}
	vcpus := max(r.VCPUs, r.VM.VCPUs)
	if !shrink {
		size.MemoryMiB, size.VCPUs = max(size.MemoryMiB, r.MemoryMiB), max(size.VCPUs, vcpus)
	}
	if size.MemoryMiB != r.MemoryMiB || size.VCPUs != vcpus {
		return p.resizeTo(ctx, &r, size)
	}
	was := r.Cgroup.Limits
	if p.e.groups.HoldCPU(&r, quota(size), size.Period, r.Overhead); r.Cgroup.Limits == was {
		return nil
	}
	return p.setState(func(record *store.Pod) { record.Cgroup = r.Cgroup })
}

// grow grows the pod for a container that is being created.
func (p *pod) grow(ctx context.Context) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.done()
	return p.fit(ctx, false)
}

// refit shrinks the pod after the removal of a container. A failure is harmless.
func (p *pod) refit(ctx context.Context) {
	if up, _ := (volumePod{p}).Up(); !up || p.ended() {
		return
	}
	err := p.acquire(ctx)
	if err == nil {
		err = p.fit(ctx, true)
		p.done()
	}
	if err != nil && !p.ended() {
		p.e.log.Warn("shrink a pod after a container is gone", "pod", p.id, "error", err)
	}
}

// demands returns the demands of the containers that have not ended.
func (p *pod) demands() (all []sizing.Demand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.containers {
		if c.Exit == nil {
			all = append(all, c.Demand())
		}
	}
	for id, c := range p.making {
		if p.containers[id] == nil {
			all = append(all, c.Demand())
		}
	}
	return all
}

func (c *container) demand() sizing.Demand {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.Demand()
}

// ask changes the demand of the container and of its pod, until restore is called.
func (c *container) ask(now sizing.Demand) (restore func()) {
	p := c.pod
	p.mu.Lock()
	defer p.mu.Unlock()
	was, asked := c.Demand(), p.record.Asked
	c.SetDemand(now)
	if asked != nil {
		next := demand.Changed(*asked, was, now)
		p.record.Asked = &next
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.SetDemand(was)
		p.record.Asked = asked
	}
}

// GrowVolume grows a named volume. If a running pod has the volume, its file system grows too. Volumes never
// shrink. The error matches named.ErrInUse if a pod that does not run has the volume.
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
	// Another call may have grown the volume while this one waited.
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

// holder returns a running pod other than but that has the block device at path.
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

// fillVolumes grows the file systems of named volumes to the size of their disks, which may have grown since the
// last mount.
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
	_, err := c.Ext.GrowVolume(ctx, &shimv1.GrowVolumeRequest{Volume: blocks.Name(b), Bytes: bytes})
	return err
}
