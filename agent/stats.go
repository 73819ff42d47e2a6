package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

func (a *Agent) memory(context.Context, none) (agentv1.Memory, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return agentv1.Memory{}, err
	}
	return parseMeminfo(string(data)), nil
}

func parseMeminfo(data string) agentv1.Memory {
	var m agentv1.Memory
	for line := range strings.Lines(data) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			m.Total = n << 10
		case "MemAvailable:":
			m.Available = n << 10
		}
	}
	return m
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
	s.MemoryLimit = memoryLimit(c.cgroup)
	s.RSS, s.PageFaults, s.MajPageFaults = memory["anon"], memory["pgfault"], memory["pgmajfault"]
	s.WorkingSet = s.MemoryBytes - min(s.MemoryBytes, memory["inactive_file"])
	s.Pids, _ = c.cgroup.Value("pids.current")
	var counted bool
	if s.RootfsBytes, s.RootfsInodes, counted = a.space.Counted(c.upper); !counted {
		s.RootfsBytes, s.RootfsInodes = usage(ctx, filepath.Join(c.upper, "upper"))
	}
	return s, nil
}

// memoryLimit returns the bytes that the processes of a cgroup can use: its limit, and at most the guest's memory. It
// returns 0 if it cannot find out.
func memoryLimit(g cgroup.Dir) uint64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	total := uint64(parseMeminfo(string(data)).Total)
	limit, err := g.Value("memory.max")
	if err != nil { // the value is "max"
		return total
	}
	return min(limit, total)
}

// oomKills waits for processes of containers that the kernel's OOM killer kills.
func (a *Agent) oomKills(ctx context.Context, known agentv1.OOMKills) (agentv1.OOMKills, error) {
	kills, err := a.ooms.Wait(ctx, known.Kills)
	return agentv1.OOMKills{Kills: kills}, err
}

// Bounds of the walk that measures a container's writes.
const (
	usageWait    = 5 * time.Second
	usageEntries = 1 << 20
)

// usage adds up the sizes below a directory, like du. If the walk exceeds its bounds, the result is a lower limit.
func usage(ctx context.Context, dir string) (bytes, inodes uint64) {
	add := func(_ int, _ string, st *unix.Stat_t) error {
		bytes += uint64(st.Blocks) * 512
		inodes++
		return nil
	}
	var top unix.Stat_t
	if unix.Lstat(dir, &top) != nil {
		return 0, 0
	}
	_ = add(0, "", &top)
	ctx, cancel := context.WithTimeout(ctx, usageWait)
	defer cancel()
	_ = guesttree.Walk(ctx, dir, guesttree.Bounds{Levels: guesttree.MaxLevels, Entries: usageEntries}, add) // errors: a lower limit
	return bytes, inodes
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
