package view

import (
	"context"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/refs"
	"github.com/bulkhead-project/bulkhead/door/run/state"
	"github.com/bulkhead-project/bulkhead/engine/usage"
	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// statsWait bounds the wait for one pod's figures. The other pods' figures are shown without them.
const statsWait = 3 * time.Second

// stats returns the usage of the named pods, or of all pods that have not ended.
func (s *Service) stats(r *http.Request) (any, error) {
	var entries []*manager.Pod
	for _, ref := range r.URL.Query()["pod"] {
		e, err := refs.Find(s.Pods, ref)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	if entries == nil {
		for _, e := range s.Pods.All() {
			if !e.HasEnded() {
				entries = append(entries, e)
			}
		}
	}
	list := make([]api.PodStats, len(entries))
	var wg sync.WaitGroup
	for i, e := range entries {
		wg.Go(func() { list[i] = s.podStats(r.Context(), e) })
	}
	wg.Wait()
	return list, nil
}

func (s *Service) podStats(ctx context.Context, e *manager.Pod) api.PodStats {
	sum, status := Summary(e), e.Status()
	st := api.PodStats{
		Name: sum.Name, Namespace: sum.Namespace, UID: sum.UID, Status: sum.Status, Created: sum.Created, Restarts: sum.Restarts,
	}
	id := e.Sandbox()
	if id == "" || e.HasEnded() {
		return st
	}
	ctx, cancel := context.WithTimeout(ctx, statsWait)
	defer cancel()
	m, err := s.Engine.Meter(id)
	var u *usage.Usage
	if err == nil {
		u, err = m.Usage(ctx)
	}
	if err != nil {
		s.Log.Debug("cannot read what a pod uses", "pod", e.Key(), "error", err)
	}
	if _, paused := s.Engine.Pauses(id); paused {
		st.Status = "Paused"
	}
	if u != nil {
		st.HostMemory = m.HostMemory(ctx)
		fillStats(&st, e.Spec(), status, u)
	}
	return st
}

// fillStats sets the figures. The limit is the sum of the containers' limits if all have one, otherwise the VM's
// memory.
func fillStats(st *api.PodStats, p *corev1.Pod, status corev1.PodStatus, u *usage.Usage) {
	st.Time = u.At
	st.Disk = api.Counters{In: int64(u.Disk.ReadBytes), Out: int64(u.Disk.WriteBytes)}
	if u.Network != nil {
		st.Network = &api.Counters{In: int64(u.Network.RxBytes), Out: int64(u.Network.TxBytes)}
	}
	limits := state.MemoryLimits(p, status)
	sum, every := int64(0), len(u.Containers) > 0
	for _, c := range u.Containers {
		st.CPU += c.CPU()
		st.Memory += int64(c.WorkingSet)
		st.PIDs += int(c.Pids)
		limit := limits[c.Name]
		sum, every = sum+limit, every && limit > 0
		st.Containers = append(st.Containers, api.ContainerStats{
			Name: c.Name, CPU: c.CPU(), Memory: int64(c.WorkingSet), MemoryLimit: limit, Writable: int64(c.RootfsBytes),
			PIDs: int(c.Pids), Restarts: manager.Restarts(status, c.Name),
		})
	}
	if st.MemoryLimit = u.Memory.Total; every {
		st.MemoryLimit = min(sum, u.Memory.Total)
	}
}
