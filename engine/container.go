package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/bundle"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/process"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/undo"
)

// StartContainer starts a created container. If the command cannot be run, the container has ended with code 126 or
// 127, and the error says why.
func (e *Engine) StartContainer(ctx context.Context, id string) error {
	c, err := e.findContainer(id)
	if err != nil {
		return err
	}
	_, err = e.do(ctx, "start "+c.ID, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, createTimeout)
		defer cancel()
		return "", failure.Wrap(c.start(ctx), "start container %s", c.Name)
	})
	return err
}

func (c *container) start(ctx context.Context) error {
	c.pod.mu.Lock()
	state := c.state()
	c.pod.mu.Unlock()
	if state != ContainerCreated {
		return failure.New(errdefs.ErrFailedPrecondition, "it is %s, not created", state)
	}
	// The start time is taken before the call: a short command has ended before the shim answers.
	var began time.Time
	for started := false; !started; {
		began = time.Now()
		shim, err := c.pod.live(ctx)
		if err != nil {
			return err
		}
		_, err = shim.Task.Start(ctx, &taskv3.StartRequest{ID: c.ID})
		if lost(err) {
			// The next shim knows whether the container has been started.
			if started, err = c.startedBefore(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			// The shim reports how the container ended.
			if recErr := c.pod.reconcile(ctx, shim); recErr != nil {
				c.pod.e.log.Debug("ask about a container that failed to start", "container", c.ID, "error", recErr)
			}
			return err
		}
		started = true
	}
	fault.Point("container.started")
	c.setStarted(began)
	return nil
}

// startedBefore asks the next shim, after one was lost, whether the container has been started.
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
	return c.state() != ContainerCreated, nil
}

// StopContainer sends a container its stop signal, and kills it after grace. With grace 0 it kills at once. It
// returns when the container has ended. It succeeds if the container has ended or does not exist.
func (e *Engine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	c, err := e.findContainer(id)
	if failure.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	// A stop with a shorter grace must not wait for one with a longer grace.
	grace = max(grace, 0)
	key := fmt.Sprintf("stop %s within %v", c.ID, grace)
	_, err = e.do(ctx, key, func(ctx context.Context) (string, error) {
		until := time.Now().Add(grace)
		err := c.stop(ctx, time.Until(until))
		for lost(err) && ctx.Err() == nil {
			err = c.stop(ctx, time.Until(until)) // by the next shim
		}
		return "", failure.Wrap(err, "stop container %s", c.Name)
	})
	return err
}

func (c *container) stop(ctx context.Context, grace time.Duration) error {
	c.pod.mu.Lock()
	state, paused := c.state(), c.pod.paused
	c.pod.mu.Unlock()
	if state == ContainerExited {
		return nil
	}
	shim, err := c.pod.live(ctx)
	if err != nil {
		return err
	}
	if paused {
		// A paused VM delivers no signals.
		if err := c.pod.resume(ctx, shim); err != nil {
			return err
		}
	}
	if grace > 0 && state == ContainerRunning {
		ended, err := c.signal(ctx, shim, uint32(c.StopSignal), false, grace)
		if ended || err != nil {
			return err
		}
	}
	ended, err := c.signal(ctx, shim, uint32(unix.SIGKILL), true, process.KillWait)
	if err == nil && !ended {
		err = failure.New(context.DeadlineExceeded, "it did not end within %v of SIGKILL", process.KillWait)
	}
	return err
}

// signal sends a signal and reports whether the container ended within wait. If so, the exit is stored.
func (c *container) signal(ctx context.Context, shim *link.Conn, sig uint32, all bool, wait time.Duration) (bool, error) {
	callCtx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	err := process.Kill(callCtx, shim, c.ID, sig, all)
	cancel()
	if err != nil && !failure.NotFound(err) && grpccode.Of(err) != codes.FailedPrecondition {
		return false, err
	}
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := waitTask(waitCtx, shim, c.ID); err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		// The shim has the same deadline and may report it first.
		if waitCtx.Err() != nil || grpccode.Of(err) == codes.DeadlineExceeded {
			return false, nil
		}
		return false, err
	}
	return true, c.pod.reconcile(ctx, shim)
}

func waitTask(ctx context.Context, c *link.Conn, id string) error {
	_, err := c.Task.Wait(ctx, &taskv3.WaitRequest{ID: id})
	return err
}

func deleteTask(ctx context.Context, c *link.Conn, id string) error {
	_, err := c.Task.Delete(ctx, &taskv3.DeleteRequest{ID: id})
	if failure.NotFound(err) {
		return nil
	}
	return err
}

// RemoveContainer kills and removes a container. It succeeds if the container does not exist. The log stays.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	c, err := e.findContainer(id)
	if failure.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = e.do(ctx, "remove "+c.ID, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, link.CallTimeout+process.KillWait)
		defer cancel()
		return "", failure.Wrap(c.remove(ctx), "remove container %s", c.Name)
	})
	return err
}

func (c *container) remove(ctx context.Context) error {
	p := c.pod
	if p.container(c.ID) == nil {
		return nil
	}
	done, err := p.blocks.Turn(ctx, c.Blocks)
	if err != nil {
		return err
	}
	defer done()
	if shim, err := p.shim(); err == nil {
		if err = c.stop(ctx, 0); err == nil {
			err = deleteTask(ctx, shim, c.ID)
		}
		if (err != nil || p.ended()) && p.stopped(ctx) {
			err = nil // the container ended with its VM, and the share server too
		}
		if err != nil {
			return err
		}
	}
	if p.removed() {
		return nil // with the container
	}
	if err := c.drop(); err != nil {
		return err
	}
	p.refit(ctx)
	p.e.emit(Deleted, p, c.ID)
	return nil
}

// drop removes the host's files of a container without a task. It removes the record last, so that Reap finds the
// rest after a crash.
func (c *container) drop() error {
	p := c.pod
	if err := bundle.Remove(p.e.store.StateDir(p.id), c.ID); err != nil {
		return err
	}
	if err := p.e.store.DropContainer(p.id, c.ID); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.containers, c.ID)
	return nil
}

// ReopenLog continues a running container's log in a new file at its path, after the old one was moved away.
func (e *Engine) ReopenLog(ctx context.Context, id string) (err error) {
	c, err := e.findContainer(id)
	if err != nil {
		return err
	}
	shim, err := c.pod.shim()
	if err != nil {
		return err
	}
	if c.Log == "" {
		return failure.New(errdefs.ErrFailedPrecondition, "container %s has no log", c.Name)
	}
	c.pod.mu.Lock()
	running := c.state() == ContainerRunning
	c.pod.mu.Unlock()
	if !running {
		return failure.New(errdefs.ErrFailedPrecondition, "container %s is not running", c.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	var rollback undo.Stack
	defer rollback.OnError(ctx, &err)
	f, err := c.openNewLog(&rollback)
	if err != nil {
		return failure.Wrap(err, "reopen the log of container %s", c.Name)
	}
	defer f.Close()
	name := "log-" + c.ID
	if err = shim.SendFile(ctx, name, f); err == nil {
		_, err = shim.Ext.ReopenLog(ctx, &shimv1.ReopenLogRequest{ContainerId: c.ID, File: name})
	}
	return failure.Wrap(err, "reopen the log of container %s", c.Name)
}

// openNewLog opens the log file again. If the operation fails, rollback removes a file that was created here, so that the
// rotation can be retried.
func (c *container) openNewLog(rollback *undo.Stack) (*os.File, error) {
	if _, err := os.Lstat(c.Log); errors.Is(err, os.ErrNotExist) {
		rollback.Push("log file", func(context.Context) error { return os.Remove(c.Log) })
	}
	return c.pod.e.paths.OpenLog(c.Log)
}
