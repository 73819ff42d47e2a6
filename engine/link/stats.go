package link

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
)

// Bounds for the numbers of a guest, so that sums do not overflow.
const (
	MaxCounter = 1 << 56
	MaxPids    = 1 << 22 // the kernel's bound
)

// maxName bounds the name of an interface or volume, in bytes.
const maxName = 64

// Stats returns the statistics of the VM and its containers. All numbers are bounded, and all names are printable.
func (c *Conn) Stats(ctx context.Context) (st agentv1.PodStats, err error) {
	res, err := c.Ext.Stats(ctx, &shimv1.StatsRequest{})
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(res.GetStats(), &st); err != nil {
		return st, fmt.Errorf("read the shim's statistics: %w", err)
	}
	now := time.Now()
	st.Memory.Total, st.Memory.Available = min(max(st.Memory.Total, 0), MaxCounter), min(max(st.Memory.Available, 0), MaxCounter)
	bound(&st.Disk.ReadBytes, &st.Disk.WriteBytes)
	if st.Network != nil {
		boundInterface(st.Network)
	}
	st.Cards = st.Cards[:min(len(st.Cards), card.Most)]
	for i := range st.Cards {
		boundInterface(&st.Cards[i])
	}
	st.Volumes = st.Volumes[:min(len(st.Volumes), agentv1.MaxVolumes)]
	for i := range st.Volumes {
		v := &st.Volumes[i]
		v.Name = name(v.Name)
		bound(&v.Used, &v.Inodes, &v.Capacity, &v.Available)
	}
	for id, s := range st.Containers {
		if s.At.Unix() < 0 || s.At.After(now.Add(maxAhead)) {
			s.At = now
		}
		s.CPUUsec = min(s.CPUUsec, MaxCounter/1000) // as nanoseconds
		bound(&s.MemoryBytes, &s.MemoryLimit, &s.WorkingSet, &s.RSS, &s.PageFaults, &s.MajPageFaults, &s.RootfsBytes, &s.RootfsInodes)
		s.Pids = min(s.Pids, MaxPids)
		st.Containers[id] = s
	}
	return st, nil
}

func boundInterface(n *agentv1.NetUsage) {
	n.Name = name(n.Name)
	bound(&n.RxBytes, &n.RxErrors, &n.TxBytes, &n.TxErrors)
}

func bound(counters ...*uint64) {
	for _, c := range counters {
		*c = min(*c, MaxCounter)
	}
}

// name returns a guest's name, bounded and printable.
func name(s string) string { return line(s[:min(len(s), maxName)]) }
