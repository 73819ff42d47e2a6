package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
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
	Containers []ContainerUsage
}

// ContainerUsage is the usage of one running container.
type ContainerUsage struct {
	ID, Name string
	agentv1.Stats
}

// CPU is the processor time that the container has used.
func (u *ContainerUsage) CPU() time.Duration { return time.Duration(u.CPUUsec) * time.Microsecond }

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
	st, err := c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	u := &Usage{At: time.Now(), Memory: st.Memory, Usage: st.Usage}
	u.Cards = nil
	for _, name := range p.snapshot().Cards { // the guest may report others
		at := slices.IndexFunc(st.Cards, func(n agentv1.NetUsage) bool { return n.Name == name })
		if at >= 0 {
			u.Cards = append(u.Cards, st.Cards[at])
		}
	}
	for id, stats := range st.Containers {
		if c := p.container(id); c != nil {
			u.Containers = append(u.Containers, ContainerUsage{ID: c.ID, Name: c.Name, Stats: stats})
		}
	}
	slices.SortFunc(u.Containers, func(a, b ContainerUsage) int { return strings.Compare(a.ID, b.ID) })
	return u, nil
}
