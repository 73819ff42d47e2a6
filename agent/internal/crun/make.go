package crun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	"github.com/bulkhead-project/bulkhead/agent/internal/launcher"
	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// made is a container that the launcher has made.
type made struct {
	of      Container
	created *launcher.Created
	cgroup  string
	began   int64 // the start time of its first process; 0 if it has ended at once
	handed  bool  // crun knows it too
}

// make creates a container with the launcher. After launcher.ErrDeclined, crun can create it.
func (r *Runtime) make(ctx context.Context, c Container, p Process, onExit func()) (*reaper.Child, error) {
	if r.launcher == nil || p.Console || !c.Ruled {
		return nil, launcher.ErrDeclined
	}
	end := agentv1.Begin(ctx, agentv1.PartLaunch)
	top, linux, annotations := c.Spec.Parts()
	s := launcher.Spec{Top: top, Linux: linux, Annotations: annotations}
	created, err := r.launcher.Create(ctx, s, launcher.Place{ID: p.ID, Cgroup: p.Cgroup, Stdio: p.Stdio}, onExit)
	switch {
	case errors.Is(err, launcher.ErrLost):
		r.log("crun starts all processes from now on: %v", err)
		return nil, err
	case err != nil:
		r.log("crun makes container %.64s: %v", p.ID, err)
		return nil, err
	}
	end()
	began := startTime(created.Child.PID()) // now, as its id cannot be another process's before it ends
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers[p.ID] = created.Container
	r.made[p.ID] = &made{of: c, created: created, cgroup: p.Cgroup, began: began}
	return created.Child, nil
}

// status is crun's record of a container.
type status struct {
	PID        int    `json:"pid"`
	Began      int64  `json:"process-start-time"`
	Cgroup     string `json:"cgroup-path"`
	Scope      string `json:"scope"`
	Root       string `json:"rootfs"`
	Systemd    bool   `json:"systemd-cgroup"`
	Bundle     string `json:"bundle"`
	Created    string `json:"created"`
	Detached   bool   `json:"detached"`
	Descriptor string `json:"external_descriptors"`
}

// handOver gives crun the state of one of the launcher's containers, because some operations need crun.
func (r *Runtime) handOver(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.made[id]
	if m == nil || m.handed {
		return nil
	}
	config, err := m.of.Spec.EncodeForExec()
	if err != nil {
		return err
	}
	record, err := json.Marshal(status{
		PID: m.created.Child.PID(), Began: m.began,
		Cgroup: strings.TrimPrefix(m.cgroup, cgroup.Mount), Root: filepath.Join(m.of.Bundle, "rootfs"),
		Bundle: m.of.Bundle, Created: time.Now().UTC().Format(time.RFC3339Nano), Detached: true,
		Descriptor: `["/dev/null","/dev/null","/dev/null"]`,
	})
	if err != nil {
		return err
	}
	dir := filepath.Join(r.state, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	files := map[string][]byte{configFile: config, "status": record}
	if len(m.created.Filter) > 0 {
		files["seccomp.bpf"] = m.created.Filter
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	m.handed = true
	return nil
}

// startTime returns the time of a process's start, in the kernel's ticks since the boot, or 0 if there is no such process.
func startTime(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may have any byte.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	const starttime = 19 // of the fields after the name
	if len(fields) <= starttime {
		return 0
	}
	n, err := strconv.ParseInt(fields[starttime], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
