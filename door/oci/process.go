package oci

import (
	"context"
	"fmt"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/shim"
)

// ResizeProcess sets the size of the terminal of a container's first process, or of the exec with a name.
func (d *Door) ResizeProcess(ctx context.Context, id, exec string, width, height uint16) error {
	return d.call(ctx, id, func(ctx context.Context, r *record, c *shim.Client) error {
		_, err := c.Task.ResizePty(ctx, &taskv3.ResizePtyRequest{
			ID: r.Container, ExecID: exec, Width: uint32(width), Height: uint32(height),
		})
		return err
	})
}

// SignalExec sends a signal to the exec with a name. ErrNotRunning means that it has ended.
func (d *Door) SignalExec(ctx context.Context, id, exec string, signal unix.Signal) error {
	err := d.call(ctx, id, func(ctx context.Context, r *record, c *shim.Client) error {
		_, err := c.Task.Kill(ctx, &taskv3.KillRequest{ID: r.Container, ExecID: exec, Signal: uint32(signal)})
		return err
	})
	if notFound(err) {
		return ErrNotRunning
	}
	return err
}

// oomKilled is the reason of a process that the guest's kernel has killed.
const oomKilled = "OOMKilled"

// OOMKilled reports whether a container has ended because the guest had no memory left.
func (d *Door) OOMKilled(ctx context.Context, id string) (killed bool, err error) {
	err = d.call(ctx, id, func(ctx context.Context, r *record, c *shim.Client) error {
		status, err := c.Extension.Status(ctx, &shimv1.StatusRequest{})
		for _, one := range status.GetContainers() {
			if one.GetId() == r.Container && one.GetExecId() == "" {
				killed = one.GetReason() == oomKilled
			}
		}
		return err
	})
	return killed, err
}

// call calls the shim of a container's pod.
func (d *Door) call(ctx context.Context, id string, do func(context.Context, *record, *shim.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	r, err := d.read(id)
	if err != nil {
		return err
	}
	if r.Sandbox {
		return errSandbox
	}
	c, err := r.shim(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := do(ctx, r, c); err != nil {
		return fmt.Errorf("container %s: %w", id, plain(err))
	}
	return nil
}
