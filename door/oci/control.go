package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/status"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/oci/convert"
)

// Pause suspends the processes of a running container.
func (d *Door) Pause(ctx context.Context, id string) error { return d.freeze(ctx, id, true) }

// Resume lets a paused container go on.
func (d *Door) Resume(ctx context.Context, id string) error { return d.freeze(ctx, id, false) }

func (d *Door) freeze(ctx context.Context, id string, pause bool) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	r, unlock, err := d.locked(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if r.Sandbox {
		return errSandbox
	}
	want := specs.ContainerState("paused")
	if pause {
		want = specs.StateRunning
	}
	if now := r.status(); now != want {
		if pause {
			return fmt.Errorf("container not running or created: %s", now)
		}
		return fmt.Errorf("container not paused: %s", now)
	}
	c, err := r.shim(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if pause {
		_, err = c.Task.Pause(ctx, &taskv3.PauseRequest{ID: r.Container})
	} else {
		_, err = c.Task.Resume(ctx, &taskv3.ResumeRequest{ID: r.Container})
	}
	if err != nil {
		return fmt.Errorf("container %s: %s", id, status.Convert(err).Message())
	}
	r.Paused = pause
	return d.write(r)
}

// Update changes the limits of a container. Absent limits stay.
func (d *Door) Update(ctx context.Context, id string, resources *specs.LinuxResources) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	r, err := d.read(id)
	if err != nil {
		return err
	}
	if r.status() == specs.StateStopped {
		return ErrNotRunning
	}
	if r.Sandbox {
		return errSandbox
	}
	changed, err := convert.Resources(resources, d.o.Strict)
	if err != nil {
		return fmt.Errorf("update container %s: %w", id, err)
	}
	d.log(id, changed.Ignored)
	raw, err := json.Marshal(changed.Guest)
	if err != nil {
		return err
	}
	err = d.ask(ctx, func(e enginev1.EngineClient) error {
		_, err := e.UpdateContainer(ctx, &enginev1.UpdateContainerRequest{
			Door: doorName, Id: r.Pod.ID, Container: r.Container, Resources: raw,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("update container %s: %s", id, status.Convert(err).Message())
	}
	return nil
}

// Processes returns the pids of the container's surrogates on the host.
func (d *Door) Processes(id string) ([]int, error) {
	r, err := d.read(id)
	if err != nil {
		return nil, err
	}
	if r.status() == specs.StateStopped {
		return nil, ErrNotRunning
	}
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", r.Surrogate.PID))
	if err != nil {
		return nil, fmt.Errorf("list the processes of container %s: %w", id, err)
	}
	if self, err := os.Readlink("/proc/self/ns/pid"); err == nil && self == own {
		return []int{r.Surrogate.PID}, nil // it has the host's namespace
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if its, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil && its == own {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// Stats returns the use of resources in the guest, for a pod's VM the sum over its containers.
func (d *Door) Stats(ctx context.Context, id string) (agentv1.Stats, error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	r, err := d.read(id)
	if err != nil {
		return agentv1.Stats{}, err
	}
	c, err := r.shim(ctx)
	if err != nil {
		return agentv1.Stats{}, err
	}
	defer c.Close()
	if !r.Sandbox {
		return read[agentv1.Stats](func() ([]byte, error) {
			res, err := c.Task.Stats(ctx, &taskv3.StatsRequest{ID: r.Container})
			return res.GetStats().GetValue(), err
		})
	}
	all, err := read[agentv1.PodStats](func() ([]byte, error) {
		res, err := c.Extension.Stats(ctx, &shimv1.StatsRequest{})
		return res.GetStats(), err
	})
	return sum(all), err
}

// read reads statistics in JSON.
func read[T any](ask func() ([]byte, error)) (st T, err error) {
	raw, err := ask()
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(raw, &st); err != nil {
		return st, fmt.Errorf("read the statistics: %w", err)
	}
	return st, nil
}
