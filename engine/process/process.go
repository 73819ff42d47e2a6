// Package process controls the processes of running containers: their first ones, and additional ones (execs).
package process

import (
	"context"
	"log/slog"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
)

// KillWait bounds the wait for processes after SIGKILL.
const KillWait = 20 * time.Second

// Container is a running container.
type Container struct {
	ID, Name string
	// StateDir is the directory of its pod with the containers' bundles.
	StateDir string
	Shim     *link.Conn
	Log      *slog.Logger
}

// Streams are the standard streams that a client wants.
type Streams struct{ Stdin, Stdout, Stderr bool }

// Attach returns the streams of the container's first process.
func (c *Container) Attach(ctx context.Context, want Streams) (link.Stream, error) {
	s, err := c.Shim.Open(ctx, c.open("", want))
	return s, failure.Wrap(err, "attach to container %s", c.Name)
}

// open returns the request for the streams of a process. exec is empty for the first process.
func (c *Container) open(exec string, want Streams) *shimv1.OpenRequest {
	return &shimv1.OpenRequest{
		Kind: shimv1.OpenRequest_ATTACH, ContainerId: c.ID, ExecId: exec,
		Stdin: want.Stdin, Stdout: want.Stdout, Stderr: want.Stderr,
	}
}

// Signal sends a signal to the container's first process.
func (c *Container) Signal(ctx context.Context, signal int) error {
	if signal < 1 || signal > 64 {
		return failure.Invalid("signal %d to container %s: signals are from 1 to 64", signal, c.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	return failure.Wrap(Kill(ctx, c.Shim, c.ID, uint32(signal), false), "signal %d to container %s", signal, c.Name)
}

// Kill sends a signal to the first process of a container, or to all.
func Kill(ctx context.Context, c *link.Conn, id string, sig uint32, all bool) error {
	_, err := c.Task.Kill(ctx, &taskv3.KillRequest{ID: id, Signal: sig, All: all})
	return err
}
