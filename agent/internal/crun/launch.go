package crun

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/agent/internal/launcher"
	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Launch makes Create and Exec use a launcher. log writes down the reason when crun replaces it. It must precede all other calls.
func (r *Runtime) Launch(l *launcher.Launcher, log func(format string, args ...any)) {
	r.launcher, r.log = l, log
}

// launch starts a process with the launcher. After launcher.ErrDeclined, the process does not run.
func (r *Runtime) launch(ctx context.Context, process json.RawMessage, p Process, onExit func()) (*reaper.Child, error) {
	if r.launcher == nil || p.Console {
		return nil, launcher.ErrDeclined
	}
	end := agentv1.Begin(ctx, agentv1.PartLaunch)
	container, err := r.container(p.ID)
	if err != nil {
		return nil, launcher.ErrDeclined // crun reports the reason
	}
	target := launcher.Target{Container: container, First: p.First, Cgroup: p.Cgroup, Stdio: p.Stdio}
	child, err := r.launcher.Exec(process, target, onExit)
	var failed *launcher.StepError
	switch {
	case errors.Is(err, launcher.ErrLost):
		r.log("crun starts all processes from now on: %v", err)
		return nil, err
	case errors.Is(err, launcher.ErrDeclined):
		return nil, err
	case errors.As(err, &failed):
		var command struct {
			Args []string `json:"args"`
			Cwd  string   `json:"cwd"`
		}
		if err := json.Unmarshal(process, &command); err != nil || len(command.Args) == 0 {
			return nil, errors.Join(failed, err)
		}
		err = classify("exec", failed.Message(command.Args[0], command.Cwd), 0)
	}
	end()
	return child, err
}

// container returns the part of a container's specification that its exec'd processes need.
func (r *Runtime) container(id string) (*launcher.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	config, err := os.ReadFile(filepath.Join(r.state, id, configFile))
	if err != nil {
		return nil, err
	}
	filter, err := os.ReadFile(filepath.Join(r.state, id, "seccomp.bpf"))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a container without a filter
		return nil, err
	}
	c := launcher.NewContainer(config, filter)
	r.containers[id] = c
	return c, nil
}
