package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/bulkhead-project/bulkhead/agent/internal/measure"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

func memory(context.Context, none) (agentv1.Memory, error) { return measure.Memory() }

// usage returns the counters of the pod's interfaces, the VM's disks and the pod's emptyDirs.
func (a *Agent) usage(context.Context, none) (u agentv1.Usage, err error) {
	if u.Network, u.Cards, err = measure.Network(a.pod.Cards()); err != nil {
		return u, err
	}
	u.Volumes = a.space.Usage()
	u.Disk, err = measure.Disks()
	return u, err
}

func (a *Agent) stats(ctx context.Context, r agentv1.Process) (agentv1.Stats, error) {
	c, err := a.container(r.Container)
	if err != nil {
		return agentv1.Stats{}, err
	}
	s := agentv1.Stats{At: time.Now().UTC()}
	cpu, err := c.cgroup.Values("cpu.stat")
	if err != nil {
		return s, fmt.Errorf("stats of container %s: %w", c.id, err)
	}
	s.CPUUsec = cpu["usage_usec"]
	memory, err := c.cgroup.Values("memory.stat")
	if err != nil {
		return s, fmt.Errorf("stats of container %s: %w", c.id, err)
	}
	if s.MemoryBytes, err = c.cgroup.Value("memory.current"); err != nil {
		return s, fmt.Errorf("stats of container %s: %w", c.id, err)
	}
	s.MemoryLimit = measure.MemoryLimit(c.cgroup)
	s.RSS, s.PageFaults, s.MajPageFaults = memory["anon"], memory["pgfault"], memory["pgmajfault"]
	s.WorkingSet = s.MemoryBytes - min(s.MemoryBytes, memory["inactive_file"])
	s.Pids, _ = c.cgroup.Value("pids.current")
	var counted bool
	if s.RootfsBytes, s.RootfsInodes, counted = a.space.Counted(c.upper); !counted {
		s.RootfsBytes, s.RootfsInodes = measure.Tree(ctx, filepath.Join(c.upper, "upper"))
	}
	return s, nil
}

// listening waits until the ports that processes listen on differ from known, and returns them.
func (a *Agent) listening(ctx context.Context, known agentv1.Listening) (agentv1.Listening, error) {
	ports, err := a.ports.Wait(ctx, known.Ports)
	return agentv1.Listening{Ports: ports}, err
}

// oomKills waits for processes of containers that the kernel's OOM killer kills.
func (a *Agent) oomKills(ctx context.Context, known agentv1.OOMKills) (agentv1.OOMKills, error) {
	kills, err := a.ooms.Wait(ctx, known.Kills)
	return agentv1.OOMKills{Kills: kills}, err
}

func (a *Agent) pids(_ context.Context, r agentv1.Process) (agentv1.Pids, error) {
	c, err := a.container(r.Container)
	if err != nil {
		return agentv1.Pids{}, err
	}
	pids, err := c.cgroup.Pids()
	if err != nil {
		return agentv1.Pids{}, fmt.Errorf("processes of container %s: %w", c.id, err)
	}
	return agentv1.Pids{Pids: pids}, nil
}

func (a *Agent) list(context.Context, none) (agentv1.List, error) {
	a.mu.Lock()
	containers := make([]*container, 0, len(a.containers))
	for _, c := range a.containers {
		containers = append(containers, c)
	}
	a.mu.Unlock()
	list := agentv1.List{Processes: []agentv1.Status{}}
	for _, c := range containers {
		c.mu.Lock()
		for _, p := range c.procs {
			status := agentv1.Status{Process: p.name, PID: p.pid, Created: p.name.Exec == "" && !c.started, Paused: c.paused}
			if p.hasExited() {
				exit := p.exit
				status.Exit = &exit
			}
			list.Processes = append(list.Processes, status)
		}
		c.mu.Unlock()
	}
	return list, nil
}
