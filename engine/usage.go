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

// Usage is what a pod's VM and its containers use, live. A guest tells it; numbers
// are bounded so that sums of them are no negative ones.
type Usage struct {
	At time.Time
	// MemoryTotal is the VM's, in bytes, and MemoryAvailable what the guest says
	// that more could be had of it.
	MemoryTotal, MemoryAvailable int64
	Network                      *NetworkUsage // nil: the pod has no interface
	Cards                        []CardUsage   // of its further interfaces
	DiskRead, DiskWritten        uint64        // bytes since the VM's start
	Volumes                      []VolumeUsage // of the emptyDirs that have been mounted
	Containers                   []ContainerUsage
}

// NetworkUsage are bytes since the VM's start.
type NetworkUsage struct{ Rx, Tx uint64 }

// CardUsage is that of a further interface.
type CardUsage struct {
	Name string
	NetworkUsage
}

// VolumeUsage is what lies in an emptyDir, in bytes, and what it may hold: without a limit of its own as much as what it
// lies on.
type VolumeUsage struct {
	Name                              string
	Used, Inodes, Capacity, Available uint64
}

// ContainerUsage is one running container's.
type ContainerUsage struct {
	ID, Name                    string
	At                          time.Time
	CPU                         time.Duration // that it has used
	Memory, WorkingSet, RSS     uint64        // bytes; the working set cannot be had back easily
	PageFaults, MajorPageFaults uint64
	Writable, WritableInodes    uint64 // of its writable layer; the first in bytes
	Pids                        uint64
}

const (
	maxCounter = 1 << 56
	maxPids    = 1 << 22 // the kernel's bound
)

// Usage returns what a pod uses. A pod that is paused, or does not run, uses nothing
// (nil).
func (e *Engine) Usage(ctx context.Context, id string) (*Usage, error) {
	p, err := e.find(id)
	if err != nil {
		return nil, err
	}
	u, err := p.usage(ctx)
	return u, failure.Wrap(err, "usage of pod %s", shortid.Of(p.id))
}

// usageWait bounds the wait for one pod's figures among those of others, whom a
// guest that does not answer must not keep from being seen.
const usageWait = 3 * time.Second

// Usages returns what pods use, by their ids: nil for one that uses nothing. One that
// does not answer in 3 seconds is left out.
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

// Memory is what the VMs of pods that are ready have been given, and what they and their
// shims take of the host's for it, in bytes.
type Memory struct{ Given, Taken int64 }

// Memory sums up over the pods. It asks no guest. Where the host counts nothing, nothing is
// taken.
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

// HeldMemory is what of the host's memory ends with a pod's VM, in bytes, as the host counts it: its guest has no say in
// it. Memory that a fork has of its parent, and has not changed, is not among it. It is false for a pod that has no VM, and where
// the host does not count.
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

// HostMemory is what a running pod's VM and shim take of the host's memory, in bytes: what ends with them as
// the host's cgroups count it, or their proportional share where these count nothing. It is 0 if neither is known.
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

// HeldDisk is what of the host's disk ends with a pod, in bytes, as the host counts it: what its VM has written, which it may have
// removed since. Its guest has no say in it. It is 0 for a pod that is not there.
func (e *Engine) HeldDisk(id string) int64 {
	if _, err := e.find(id); err != nil {
		return 0
	}
	return diskusage.Of(e.Dir(id))
}

func (p *pod) usage(ctx context.Context) (*Usage, error) {
	c, err := p.shim()
	if err != nil || p.isPaused() {
		return nil, nil // what has no shim does not run
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
	for _, name := range p.snapshot().Cards { // whatever others the guest tells of
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
	for _, told := range res.GetContainers() {
		if ctr := p.container(told.GetId()); ctr != nil {
			u.Containers = append(u.Containers, ctr.usage(told))
		}
	}
	return u, nil
}

func networkUsage(n *shimv1.NetworkStats) NetworkUsage {
	return NetworkUsage{Rx: min(n.GetRxBytes(), maxCounter), Tx: min(n.GetTxBytes(), maxCounter)}
}

func (c *container) usage(told *shimv1.ContainerStats) ContainerUsage {
	return ContainerUsage{
		ID: c.ID, Name: c.Name, At: told.GetAt().AsTime(),
		CPU:        time.Duration(min(told.GetCpuUsec(), maxCounter/1000)) * time.Microsecond,
		Memory:     min(told.GetMemoryBytes(), maxCounter),
		WorkingSet: min(told.GetWorkingSetBytes(), maxCounter),
		RSS:        min(told.GetRssBytes(), maxCounter),
		PageFaults: min(told.GetPageFaults(), maxCounter), MajorPageFaults: min(told.GetMajorPageFaults(), maxCounter),
		Writable: min(told.GetRootfsBytes(), maxCounter), WritableInodes: min(told.GetRootfsInodes(), maxCounter),
		Pids: min(told.GetPids(), maxPids),
	}
}
