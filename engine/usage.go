package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/diskusage"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/internal/pss"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// Usage is the current usage of a pod's VM and containers. The guest reports the numbers; they are capped so that
// sums do not overflow.
type Usage struct {
	At time.Time
	// MemoryTotal is the VM's memory, and MemoryAvailable the part that the guest reports as available, both in
	// bytes.
	MemoryTotal, MemoryAvailable int64
	Network                      *NetworkUsage // nil if the pod has no interface
	Cards                        []CardUsage   // of additional interfaces
	DiskRead, DiskWritten        uint64        // bytes since the VM's start
	Volumes                      []VolumeUsage // of the mounted emptyDirs
	Containers                   []ContainerUsage
}

// NetworkUsage counts bytes since the VM's start.
type NetworkUsage struct{ Rx, Tx uint64 }

// CardUsage is the usage of an additional interface.
type CardUsage struct {
	Name string
	NetworkUsage
}

// VolumeUsage is the usage and the capacity of an emptyDir, in bytes. Without a limit of its own, its capacity is
// the capacity of its file system.
type VolumeUsage struct {
	Name                              string
	Used, Inodes, Capacity, Available uint64
}

// ContainerUsage is the usage of one running container.
type ContainerUsage struct {
	ID, Name                    string
	At                          time.Time
	CPU                         time.Duration // in total
	Memory, WorkingSet, RSS     uint64        // in bytes; the working set cannot be reclaimed easily
	PageFaults, MajorPageFaults uint64
	Writable, WritableInodes    uint64 // of its writable layer; Writable in bytes
	Pids                        uint64
}

const (
	maxCounter = 1 << 56
	maxPids    = 1 << 22 // the kernel's bound
)

// Usage returns the usage of a pod, or nil if the pod is paused or does not run.
func (e *Engine) Usage(ctx context.Context, id string) (*Usage, error) {
	p, err := e.find(id)
	if err != nil {
		return nil, err
	}
	u, err := p.usage(ctx)
	return u, failure.Wrap(err, "usage of pod %s", shortid.Of(p.id))
}

// usageWait bounds the wait for each pod in Usages, so that a hanging guest does not hide the others.
const usageWait = 3 * time.Second

// Usages returns the usage of pods by id: nil for a pod that is paused or does not run. A pod without an answer
// within 3 seconds is left out.
func (e *Engine) Usages(ctx context.Context, ids []string) map[string]*Usage {
	ctx, cancel := context.WithTimeout(ctx, usageWait)
	defer cancel()
	var mu sync.Mutex
	out := map[string]*Usage{}
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			u, err := e.Usage(ctx, id)
			if err != nil {
				e.log.Debug("usage of a pod", "pod", id, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[id] = u
		})
	}
	all.Wait()
	return out
}

// Memory is the memory given to the VMs of ready pods, and the host memory that they and their shims use for it, in
// bytes.
type Memory struct{ Given, Taken int64 }

// Memory sums up over the pods. It calls no guest. Taken is 0 if the host counts nothing.
func (e *Engine) Memory() (m Memory) {
	for _, p := range e.all() {
		r := p.snapshot()
		if r.Phase != store.Ready || r.Exit != "" {
			continue
		}
		m.Given += int64(r.MemoryMiB) << 20
		taken, _ := hostcgroup.At(r.Cgroup.Dirs).Memory() // 0 where there is no group
		m.Taken += taken
	}
	return m
}

// HeldMemory returns the host memory that ends with a pod's VM, in bytes. The host counts it; the guest cannot
// change the number. Memory that a fork shares with its parent does not count. It returns false if the pod has no
// VM, or if the host counts nothing.
func (e *Engine) HeldMemory(id string) (bytes int64, known bool) {
	p, err := e.find(id)
	if err != nil {
		return 0, false
	}
	r := p.snapshot()
	if r.Phase != store.Ready || r.Exit != "" {
		return 0, false
	}
	return hostcgroup.At(r.Cgroup.Dirs).HeldMemory()
}

// HostMemory returns the host memory of a running pod's VM and shim, in bytes. If the host's cgroups count nothing,
// it is their proportional share instead of the memory that ends with them. It is 0 if neither is known.
func (e *Engine) HostMemory(ctx context.Context, id string) (sum int64) {
	if held, known := e.HeldMemory(id); known {
		return held
	}
	facts, err := e.Facts(ctx, id)
	if err != nil {
		return 0
	}
	for _, pid := range []int{facts.VMPID, facts.ShimPID} {
		if pid > 0 {
			weight, _ := pss.Of(pid) // 0 for one that has ended
			sum += weight
		}
	}
	return sum
}

// HeldDisk returns the host's disk space that ends with a pod, in bytes. It includes files that the VM has removed.
// The host counts it; the guest cannot change the number. It is 0 for an unknown pod.
func (e *Engine) HeldDisk(id string) int64 {
	if _, err := e.find(id); err != nil {
		return 0
	}
	return diskusage.Of(e.Dir(id))
}

func (p *pod) usage(ctx context.Context) (*Usage, error) {
	c, err := p.shim()
	if err != nil || p.isPaused() {
		return nil, nil // a pod without a shim does not run
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	res, err := c.Ext.Stats(ctx, &shimv1.StatsRequest{})
	if err != nil {
		return nil, err
	}
	u := &Usage{
		At:              time.Now(),
		MemoryTotal:     min(max(res.GetGuestMemoryTotal(), 0), maxCounter),
		MemoryAvailable: min(max(res.GetGuestMemoryAvailable(), 0), maxCounter),
		DiskRead:        min(res.GetDisk().GetReadBytes(), maxCounter),
		DiskWritten:     min(res.GetDisk().GetWriteBytes(), maxCounter),
	}
	if n := res.GetNetwork(); n != nil {
		used := networkUsage(n)
		u.Network = &used
	}
	for _, name := range p.snapshot().Cards { // the guest may report others
		at := slices.IndexFunc(res.GetCards(), func(n *shimv1.NetworkStats) bool { return n.GetName() == name })
		if at >= 0 {
			u.Cards = append(u.Cards, CardUsage{name, networkUsage(res.GetCards()[at])})
		}
	}
	for _, v := range res.GetVolumes()[:min(len(res.GetVolumes()), agentv1.MaxVolumes)] {
		u.Volumes = append(u.Volumes, VolumeUsage{
			Name: v.GetName(), Used: min(v.GetUsedBytes(), maxCounter), Inodes: min(v.GetInodes(), maxCounter),
			Capacity: min(v.GetCapacityBytes(), maxCounter), Available: min(v.GetAvailableBytes(), maxCounter),
		})
	}
	for _, stats := range res.GetContainers() {
		if ctr := p.container(stats.GetId()); ctr != nil {
			u.Containers = append(u.Containers, ctr.usage(stats))
		}
	}
	return u, nil
}

func networkUsage(n *shimv1.NetworkStats) NetworkUsage {
	return NetworkUsage{Rx: min(n.GetRxBytes(), maxCounter), Tx: min(n.GetTxBytes(), maxCounter)}
}

func (c *container) usage(stats *shimv1.ContainerStats) ContainerUsage {
	return ContainerUsage{
		ID: c.ID, Name: c.Name, At: stats.GetAt().AsTime(),
		CPU:        time.Duration(min(stats.GetCpuUsec(), maxCounter/1000)) * time.Microsecond,
		Memory:     min(stats.GetMemoryBytes(), maxCounter),
		WorkingSet: min(stats.GetWorkingSetBytes(), maxCounter),
		RSS:        min(stats.GetRssBytes(), maxCounter),
		PageFaults: min(stats.GetPageFaults(), maxCounter), MajorPageFaults: min(stats.GetMajorPageFaults(), maxCounter),
		Writable: min(stats.GetRootfsBytes(), maxCounter), WritableInodes: min(stats.GetRootfsInodes(), maxCounter),
		Pids: min(stats.GetPids(), maxPids),
	}
}
