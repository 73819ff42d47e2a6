package cri

import (
	"context"
	"time"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
)

// Usage is what a pod's machine and its containers use, live.
type Usage struct {
	At time.Time
	// MemoryTotal is the machine's, in bytes, and MemoryAvailable what the guest
	// says that more could be had of it.
	MemoryTotal, MemoryAvailable int64
	Network                      *NetworkUsage // nil: the pod has no interface
	DiskRead, DiskWritten        uint64        // bytes since the machine's start
	Containers                   []ContainerUsage
}

// NetworkUsage are bytes since the machine's start.
type NetworkUsage struct{ Rx, Tx uint64 }

// ContainerUsage is one running container's.
type ContainerUsage struct {
	Name       string
	CPU        time.Duration // that it has used
	WorkingSet uint64        // bytes of memory that cannot be had back easily
	Writable   uint64        // bytes of its writable layer
	Pids       uint64
}

// maxCounter bounds what a guest tells: sums of it are no negative numbers.
const maxCounter = 1 << 56

// PodUsage returns what a pod uses. A pod that is paused, or does not run, uses
// nothing (nil).
func (s *Service) PodUsage(ctx context.Context, id string) (*Usage, error) {
	p, err := s.find(id)
	if err != nil {
		return nil, err
	}
	c, err := p.shim()
	if err != nil || p.isPaused() {
		return nil, nil // what has no shim does not run
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.ext.Stats(ctx, &shimv1.StatsRequest{})
	if err != nil {
		return nil, fail(err, "usage of pod %s", short(p.id))
	}
	u := &Usage{
		At: time.Now(), MemoryTotal: min(max(res.GetGuestMemoryTotal(), 0), maxCounter), MemoryAvailable: min(max(res.GetGuestMemoryAvailable(), 0), maxCounter),
		DiskRead: res.GetDisk().GetReadBytes(), DiskWritten: res.GetDisk().GetWriteBytes(),
	}
	if n := res.GetNetwork(); n != nil {
		u.Network = &NetworkUsage{Rx: n.GetRxBytes(), Tx: n.GetTxBytes()}
	}
	u.DiskRead, u.DiskWritten = min(u.DiskRead, maxCounter), min(u.DiskWritten, maxCounter)
	if n := u.Network; n != nil {
		n.Rx, n.Tx = min(n.Rx, maxCounter), min(n.Tx, maxCounter)
	}
	for _, word := range res.GetContainers() {
		ctr := p.container(word.GetId())
		if ctr == nil {
			continue
		}
		u.Containers = append(u.Containers, ContainerUsage{
			Name: ctr.name, CPU: time.Duration(min(word.GetCpuUsec(), maxCounter/1000)) * time.Microsecond, WorkingSet: min(word.GetWorkingSetBytes(), maxCounter),
			Writable: min(word.GetRootfsBytes(), maxCounter), Pids: min(word.GetPids(), 1<<22),
		})
	}
	return u, nil
}
