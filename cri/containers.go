package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/undo"
)

// killWait bounds the wait for what got KILL.
const killWait = 20 * time.Second

// StartContainer starts a created container. A container whose command cannot
// be run has ended then, with code 126 or 127, and the error says why.
func (s *Service) StartContainer(ctx context.Context, id string) error {
	c, err := s.findContainer(id)
	if err != nil {
		return err
	}
	defer s.pool.refill(quiet)
	_, err = s.do(ctx, "start "+c.ID, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, createTimeout)
		defer cancel()
		return "", fail(c.start(ctx), "start container %s", c.name)
	})
	return err
}

func (c *container) start(ctx context.Context) error {
	c.pod.mu.Lock()
	state := c.state()
	c.pod.mu.Unlock()
	if state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return errorf(codes.FailedPrecondition, "it is %s, not created", stateName(state))
	}
	for started := false; !started; {
		shim, err := c.pod.live(ctx)
		if err != nil {
			return err
		}
		_, err = shim.task.Start(ctx, &taskv3.StartRequest{ID: c.ID})
		if lost(err) {
			// The next shim knows whether the container has been started.
			if started, err = c.startedBefore(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			// How it ended is the shim's to tell.
			if recErr := c.pod.reconcile(ctx, shim); recErr != nil {
				c.pod.s.log.Debug("ask about a container that failed to start", "container", c.ID, "error", recErr)
			}
			return err
		}
		started = true
	}
	fault.Point("container.started")
	c.pod.setStarted(c, time.Now())
	return nil
}

// startedBefore asks the shim that comes after one that was lost.
func (c *container) startedBefore(ctx context.Context) (bool, error) {
	next, err := c.pod.live(ctx)
	if err != nil {
		return false, err
	}
	if err := c.pod.reconcile(ctx, next); err != nil && !lost(err) {
		return false, err
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.state() != runtimeapi.ContainerState_CONTAINER_CREATED, nil
}

func stateName(s runtimeapi.ContainerState) string {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return "created"
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return "running"
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return "exited"
	}
	return "unknown"
}

// StopContainer asks a container to end with its stop signal, and after
// timeout seconds kills it; with 0 it kills at once. It returns when the
// container has ended, and succeeds for one that has already or is not there.
func (s *Service) StopContainer(ctx context.Context, id string, timeout int64) error {
	c, err := s.findContainer(id)
	if notFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	// A stop with less patience must not wait for one with more.
	key := fmt.Sprintf("stop %s within %d", c.ID, max(timeout, 0))
	_, err = s.do(ctx, key, func(ctx context.Context) (string, error) {
		until := time.Now().Add(time.Duration(max(timeout, 0)) * time.Second)
		err := c.stop(ctx, time.Until(until))
		for lost(err) && ctx.Err() == nil {
			err = c.stop(ctx, time.Until(until)) // by the next shim
		}
		return "", fail(err, "stop container %s", c.name)
	})
	return err
}

func (c *container) stop(ctx context.Context, grace time.Duration) error {
	c.pod.mu.Lock()
	state, paused := c.state(), c.pod.paused
	c.pod.mu.Unlock()
	if state == runtimeapi.ContainerState_CONTAINER_EXITED {
		return nil
	}
	shim, err := c.pod.live(ctx)
	if err != nil {
		return err
	}
	if paused {
		// A machine that stands still delivers no signal.
		if err := c.pod.resume(ctx, shim); err != nil {
			return err
		}
	}
	if grace > 0 && state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		ended, err := c.signal(ctx, shim, uint32(c.StopSignal), false, grace)
		if ended || err != nil {
			return err
		}
	}
	ended, err := c.signal(ctx, shim, sigKILL, true, killWait)
	if err == nil && !ended {
		err = errorf(codes.DeadlineExceeded, "it did not end within %v of SIGKILL", killWait)
	}
	return err
}

// signal sends a signal and reports whether the container ended within wait;
// if so, its end is stored.
func (c *container) signal(ctx context.Context, shim *conn, sig uint32, all bool, wait time.Duration) (bool, error) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	err := kill(callCtx, shim, c.ID, sig, all)
	cancel()
	if err != nil && !notFound(err) && code(err) != codes.FailedPrecondition {
		return false, err
	}
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := waitTask(waitCtx, shim, c.ID); err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		// The shim has the same deadline and may be the first to see it.
		if waitCtx.Err() != nil || code(err) == codes.DeadlineExceeded {
			return false, nil
		}
		return false, err
	}
	return true, c.pod.reconcile(ctx, shim)
}

func kill(ctx context.Context, c *conn, id string, sig uint32, all bool) error {
	_, err := c.task.Kill(ctx, &taskv3.KillRequest{ID: id, Signal: sig, All: all})
	return err
}

func waitTask(ctx context.Context, c *conn, id string) error {
	_, err := c.task.Wait(ctx, &taskv3.WaitRequest{ID: id})
	return err
}

func deleteTask(ctx context.Context, c *conn, id string) error {
	_, err := c.task.Delete(ctx, &taskv3.DeleteRequest{ID: id})
	if notFound(err) {
		return nil
	}
	return err
}

// RemoveContainer removes a container, killing it first. It succeeds for one
// that is not there. The container's log stays.
func (s *Service) RemoveContainer(ctx context.Context, id string) error {
	c, err := s.findContainer(id)
	if notFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = s.do(ctx, "remove "+c.ID, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout+killWait)
		defer cancel()
		return "", fail(c.remove(ctx), "remove container %s", c.name)
	})
	return err
}

func (c *container) remove(ctx context.Context) error {
	p := c.pod
	if p.container(c.ID) == nil {
		return nil
	}
	if shim, err := p.shim(); err == nil {
		if err := c.stop(ctx, 0); err != nil {
			return err
		}
		if err := deleteTask(ctx, shim, c.ID); err != nil {
			return err
		}
	}
	// The record last: until it is gone, a crash leaves something to find.
	if err := p.dropBundle(c.ID); err != nil {
		return err
	}
	if err := p.s.store.DropContainer(p.id, c.ID); err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.containers, c.ID)
	p.mu.Unlock()
	p.s.events.emit(p, c.ID, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

// UpdateContainerResources changes the limits of a running container.
func (s *Service) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error {
	c, err := s.findContainer(id)
	if err != nil {
		return err
	}
	shim, err := c.pod.shim()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(linuxResources(resources.GetLinux()))
	if err != nil {
		return invalid("update container: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = shim.task.Update(ctx, &taskv3.UpdateTaskRequest{
		ID: c.ID, Resources: &anypb.Any{TypeUrl: "io.containerd.cgroups/runtime-spec/LinuxResources", Value: raw},
	})
	if err != nil {
		return fail(err, "update container %s", c.name)
	}
	now := resources.GetLinux()
	if err := c.pod.updateCPU(c.cpu(), cpuLimit{now.GetCpuQuota(), now.GetCpuPeriod()}); err != nil {
		return fail(err, "update container %s", c.name)
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	next := proto.CloneOf(c.config)
	if next.Linux == nil {
		next.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	next.Linux.Resources = resources.GetLinux()
	return c.replaceConfig(next)
}

// linuxResources leaves out what is 0: no change.
func linuxResources(r *runtimeapi.LinuxContainerResources) *specs.LinuxResources {
	out := &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: r.GetCpusetCpus(), Mems: r.GetCpusetMems()}}
	if q := r.GetCpuQuota(); q != 0 {
		out.CPU.Quota = &q
	}
	if p := uint64(max(r.GetCpuPeriod(), 0)); p != 0 {
		out.CPU.Period = &p
	}
	if sh := uint64(max(r.GetCpuShares(), 0)); sh != 0 {
		out.CPU.Shares = &sh
	}
	if limit := r.GetMemoryLimitInBytes(); limit != 0 {
		out.Memory = &specs.LinuxMemory{Limit: &limit}
	}
	if len(r.GetUnified()) > 0 {
		out.Unified = r.GetUnified()
	}
	return out
}

// ReopenContainerLog lets a running container's log go on in a new file at its
// path, after the old one was moved away.
func (s *Service) ReopenContainerLog(ctx context.Context, id string) (err error) {
	c, err := s.findContainer(id)
	if err != nil {
		return err
	}
	shim, err := c.pod.shim()
	if err != nil {
		return err
	}
	path := c.log
	if path == "" {
		return errorf(codes.FailedPrecondition, "container %s has no log", c.name)
	}
	c.pod.mu.Lock()
	running := c.state() == runtimeapi.ContainerState_CONTAINER_RUNNING
	c.pod.mu.Unlock()
	if !running {
		return errorf(codes.FailedPrecondition, "container %s is not running", c.name)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var rollback undo.Stack
	defer rollback.OnError(ctx, &err)
	f, err := s.openNewLog(path, &rollback)
	if err != nil {
		return fail(err, "reopen the log of container %s", c.name)
	}
	defer f.Close()
	name := "log-" + c.ID
	if err = shim.sendFile(ctx, name, f); err == nil {
		_, err = shim.ext.ReopenLog(ctx, &shimv1.ReopenLogRequest{ContainerId: c.ID, File: name})
	}
	return fail(err, "reopen the log of container %s", c.name)
}
