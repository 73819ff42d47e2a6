// Package usage measures the use of a pod's VM: by the guest's own numbers, and by the host's, which the guest cannot
// change.
package usage

import (
	"context"
	"log/slog"
	"slices"
	"strings"
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

// Usage is the current usage of a pod's VM and containers. The guest reports the numbers; they are bounded so that sums
// do not overflow.
type Usage struct {
	At     time.Time
	Memory agentv1.Memory // of the VM
	agentv1.Usage
	Containers []Container
}

// Container is the usage of one running container.
type Container struct {
	ID, Name string
	agentv1.Stats
}

// CPU is the processor time that the container has used.
func (u *Container) CPU() time.Duration { return time.Duration(u.CPUUsec) * time.Microsecond }

// Meter measures a pod. It describes the pod at the time when the engine made it.
type Meter struct {
	Record store.Pod
	Dir    string            // of the pod's records and disk
	Shim   *link.Conn        // nil for a pod that does not run
	Paused bool              // the VM
	Names  map[string]string // of the containers, by id
}

// Usage returns the pod's usage, or nil if the pod is paused or does not run.
func (m *Meter) Usage(ctx context.Context) (*Usage, error) {
	if m.Shim == nil || m.Paused {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	st, err := m.Shim.Stats(ctx)
	if err != nil {
		return nil, failure.Wrap(err, "usage of pod %s", shortid.Of(m.Record.ID))
	}
	u := &Usage{At: time.Now(), Memory: st.Memory, Usage: st.Usage}
	u.Cards = nil
	for _, name := range m.Record.Cards { // the guest may report others
		at := slices.IndexFunc(st.Cards, func(n agentv1.NetUsage) bool { return n.Name == name })
		if at >= 0 {
			u.Cards = append(u.Cards, st.Cards[at])
		}
	}
	for id, stats := range st.Containers {
		if name, known := m.Names[id]; known {
			u.Containers = append(u.Containers, Container{ID: id, Name: name, Stats: stats})
		}
	}
	slices.SortFunc(u.Containers, func(a, b Container) int { return strings.Compare(a.ID, b.ID) })
	return u, nil
}

// wait bounds the wait for each pod in All, so that a hanging guest does not hide the others.
const wait = 3 * time.Second

// All returns the usage of pods by id: nil for a pod that is paused or does not run. A pod without an answer within
// 3 seconds is left out.
func All(ctx context.Context, pods []Meter, log *slog.Logger) map[string]*Usage {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var mu sync.Mutex
	out := map[string]*Usage{}
	var all sync.WaitGroup
	for _, m := range pods {
		all.Go(func() {
			u, err := m.Usage(ctx)
			if err != nil {
				log.Debug("usage of a pod", "pod", m.Record.ID, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[m.Record.ID] = u
		})
	}
	all.Wait()
	return out
}

// ready reports whether the pod has a VM.
func (m *Meter) ready() bool { return m.Record.Phase == store.Ready && m.Record.Exit == "" }

// Memory returns the memory given to the VM of a ready pod, and the host memory that the VM and its shim use for it,
// in bytes. It calls no guest. taken is 0 if the host counts nothing.
func (m *Meter) Memory() (given, taken int64) {
	if !m.ready() {
		return 0, 0
	}
	taken, _ = hostcgroup.At(m.Record.Cgroup.Dirs).Memory() // 0 where there is no group
	return int64(m.Record.MemoryMiB) << 20, taken
}

// HeldMemory returns the host memory that ends with the pod's VM, in bytes. The host counts it; the guest cannot
// change the number. Memory that a fork shares with its parent does not count. It returns false if the pod has no
// VM, or if the host counts nothing.
func (m *Meter) HeldMemory() (bytes int64, known bool) {
	if !m.ready() {
		return 0, false
	}
	return hostcgroup.At(m.Record.Cgroup.Dirs).HeldMemory()
}

// HostMemory returns the host memory of a running pod's VM and shim, in bytes. If the host's cgroups count nothing,
// it is their proportional share instead of the memory that ends with them. It is 0 if neither is known.
func (m *Meter) HostMemory(ctx context.Context) (sum int64) {
	if held, known := m.HeldMemory(); known || m.Shim == nil {
		return held
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	st, err := m.Shim.Ext.Status(ctx, &shimv1.StatusRequest{})
	if err != nil {
		return 0
	}
	for _, pid := range []int64{int64(st.GetVmPid()), int64(st.GetShimPid())} {
		if pid > 0 {
			weight, _ := pss.Of(int(pid)) // 0 for one that has ended
			sum += weight
		}
	}
	return sum
}

// HeldDisk returns the host's disk space that ends with the pod, in bytes. It includes files that the VM has removed.
// The host counts it; the guest cannot change the number.
func (m *Meter) HeldDisk() int64 { return diskusage.Of(m.Dir) }
