package oci

import (
	"context"
	"errors"
	"fmt"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/shim"
)

// callWait bounds a call to a pod's shim.
const callWait = time.Minute

// shim connects to the shim of a container's pod.
func (r *record) shim(ctx context.Context) (*shim.Client, error) {
	return shim.Connect(ctx, r.Pod.Dir)
}

func notFound(err error) bool { return err != nil && status.Code(err) == codes.NotFound }

// Start starts a created container.
func (d *Door) Start(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	r, unlock, err := d.locked(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	switch r.status() {
	case specs.StateCreated:
	case specs.StateStopped:
		return fmt.Errorf("cannot start a container that has stopped")
	case specs.StateRunning, "paused":
		return fmt.Errorf("cannot start an already running container")
	default:
		return fmt.Errorf("cannot start a container in the %s state", r.status())
	}
	if err := d.adopt(ctx, r); err != nil {
		return err
	}
	fault.Point("oci.adopted")
	if err := r.run(ctx); err != nil {
		return err
	}
	fault.Point("oci.started")
	r.Started = true
	if err := d.write(r); err != nil {
		return err
	}
	if err := r.hooks(ctx, r.Hooks, containerv1.Poststart, specs.StateRunning); err != nil {
		d.o.Logger.Warn("a poststart hook failed", "container", id, "error", err)
	}
	return nil
}

// run runs the container's process in the guest.
func (r *record) run(ctx context.Context) error {
	if r.Sandbox {
		return nil
	}
	c, err := r.shim(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Task.Start(ctx, &taskv3.StartRequest{ID: r.Container}); err != nil {
		return fmt.Errorf("start container %s: %s", r.ID, status.Convert(err).Message())
	}
	return nil
}

// Kill sends a signal to a container's first process, or to all of its processes.
func (d *Door) Kill(ctx context.Context, id string, signal unix.Signal, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	r, err := d.read(id)
	if err != nil {
		return err
	}
	switch now := r.status(); {
	case now == specs.StateStopped:
		if all {
			return nil
		}
		return ErrNotRunning
	case !r.Sandbox && (now == specs.StateRunning || now == "paused"):
	default: // its process does not exist yet, so the surrogate stands for it
		return r.Surrogate.Signal(signal)
	}
	if signal == 0 {
		return nil // it lives
	}
	c, err := r.shim(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Task.Kill(ctx, &taskv3.KillRequest{ID: r.Container, Signal: uint32(signal), All: all})
	if code := status.Code(err); code == codes.NotFound || code == codes.FailedPrecondition {
		return ErrNotRunning
	}
	return err
}

// deleteWait bounds the wait for a killed surrogate.
const deleteWait = 20 * time.Second

// Delete removes a stopped container. With force it kills a running one, and succeeds for an unknown one.
func (d *Door) Delete(ctx context.Context, id string, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, createWait)
	defer cancel()
	unlock, err := d.lock(ctx, id)
	if errors.Is(err, ErrNotExist) && force {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	r, err := d.read(id)
	if errors.Is(err, ErrNotExist) { // half made
		r = &record{ID: id, Pod: podRecord{Key: d.key(id), Own: true}}
	} else if err != nil {
		return err
	}
	if r.status() != specs.StateStopped {
		if !force && r.status() != specs.StateCreated {
			return fmt.Errorf("cannot delete container %s that is not stopped: %s", id, r.status())
		}
		if err := d.end(ctx, r); err != nil {
			return err
		}
		fault.Point("oci.ended")
	}
	return d.delete(ctx, r)
}

// end kills a container's surrogate and waits for its end.
func (d *Door) end(ctx context.Context, r *record) error {
	if err := r.Surrogate.Signal(unix.SIGKILL); err != nil && alive(r.Surrogate) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, deleteWait)
	defer cancel()
	return r.Surrogate.Wait(ctx)
}

// plain returns the message of a call's error without the words of the protocol. The status stays.
func plain(err error) error {
	if s, ok := status.FromError(err); ok && err != nil {
		return &called{s.Message(), err}
	}
	return err
}

type called struct {
	text string
	err  error
}

func (c *called) Error() string { return c.text }
func (c *called) Unwrap() error { return c.err }
