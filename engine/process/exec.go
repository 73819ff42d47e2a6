package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/bundle"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// maxOutput bounds each stream of Output, in bytes, as other runtimes do.
const maxOutput = 16 << 20

// ExitError is returned for a command that ran and exited with another code than 0. It has the methods of
// k8s.io/utils/exec.ExitError.
type ExitError struct{ Code int }

// Error returns one line.
func (e *ExitError) Error() string { return fmt.Sprintf("command ended with exit code %d", e.Code) }

// String returns the same as Error.
func (e *ExitError) String() string { return e.Error() }

// Exited returns true.
func (e *ExitError) Exited() bool { return true }

// ExitStatus returns Code.
func (e *ExitError) ExitStatus() int { return e.Code }

// ErrOutput is matched by the error of Output if the command wrote more than 16 MiB to one stream. The command has
// been killed.
var ErrOutput = errdefs.ErrResourceExhausted.WithMessage("the command's output is too long")

// Size is the size of a terminal.
type Size = stream.Size

// Request asks for an additional process.
type Request struct {
	Command []string
	TTY     bool
	Streams // at least one
	// Size is the size of the terminal when the command starts; zero means unknown.
	Size Size
	oci.Override
}

// Exec prepares a command and returns its streams. The command runs when a client connects to them, unless that
// takes longer than a minute. If the command cannot be run, the streams report exit code 126 or 127. The process is
// deleted after its exit or with its container.
func (c *Container) Exec(ctx context.Context, r Request) (link.Stream, error) {
	if r.Streams == (Streams{}) {
		return link.Stream{}, failure.Invalid("exec in container %s: at least one of stdin, stdout and stderr is required", c.Name)
	}
	exec, err := c.newExec(ctx, r)
	if err != nil {
		return link.Stream{}, failure.Wrap(err, "exec in container %s", c.Name)
	}
	r.Stderr = r.Stderr && !r.TTY
	request := c.open(exec.id, r.Streams)
	request.Start = true
	s, err := c.Shim.Open(ctx, request)
	if err != nil {
		exec.cleanUp(ctx)
	}
	return s, failure.Wrap(err, "exec in container %s", c.Name)
}

// Output runs a command and returns its output. The error is an *ExitError if the command exits with another code
// than 0, does not exist (127) or cannot be run (126). After a timeout above 0 the command is killed, and the
// error's code is codes.DeadlineExceeded.
func (c *Container) Output(ctx context.Context, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	return c.output(ctx, cmd, timeout, &bounded{}, &bounded{})
}

// Clipped is like Output, but keeps only the first limit bytes of each stream. It discards the rest without an
// error.
func (c *Container) Clipped(
	ctx context.Context, cmd []string, timeout time.Duration, limit int,
) (stdout, stderr []byte, err error) {
	return c.output(ctx, cmd, timeout, &clipped{limit: limit}, &clipped{limit: limit})
}

// output counts the timeout from the moment at which the command runs. The time that this host takes to start it
// says nothing about the container.
func (c *Container) output(ctx context.Context, cmd []string, timeout time.Duration, out, errOut interface {
	io.Writer
	Bytes() []byte
},
) (stdout, stderr []byte, err error) {
	starting, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	exec, err := c.newExec(starting, Request{Command: cmd})
	if err != nil {
		return nil, nil, failure.Wrap(err, "exec in container %s", c.Name)
	}
	defer exec.cleanUp(ctx)
	at, err := c.Shim.Open(starting, c.open(exec.id, Streams{Stdout: true, Stderr: true}))
	if err != nil {
		return nil, nil, failure.Wrap(err, "exec in container %s", c.Name)
	}
	carrier, err := stream.Dial(starting, at.Socket, at.Token)
	if err != nil {
		return nil, nil, failure.Wrap(err, "exec in container %s", c.Name)
	}
	result := make(chan error, 1)
	var exitCode int
	running, expire := context.WithCancelCause(ctx)
	defer expire(nil)
	go func() {
		var err error
		exitCode, err = stream.Stdio{Stdout: out, Stderr: errOut}.Run(running, carrier)
		result <- err
	}()
	if _, err := c.Shim.Task.Start(starting, &taskv3.StartRequest{ID: c.ID, ExecID: exec.id}); err != nil {
		carrier.Close()
		<-result //nolint:errcheck // only its end matters
		if exit := exec.failed(ctx); exit != 0 {
			return nil, []byte(failure.Message(err) + "\n"), &ExitError{exit}
		}
		return nil, nil, failure.Wrap(err, "exec in container %s", c.Name)
	}
	if timeout > 0 {
		defer time.AfterFunc(timeout, func() { expire(context.DeadlineExceeded) }).Stop()
	}
	err = <-result
	if err != nil && running.Err() != nil {
		err = failure.New(errclass.Of(context.Cause(running)), "not done within %v", timeout)
	}
	if err == nil && exitCode != 0 {
		return out.Bytes(), errOut.Bytes(), &ExitError{exitCode}
	}
	return out.Bytes(), errOut.Bytes(), failure.Wrap(err, "exec in container %s", c.Name)
}

// bounded takes at most maxOutput bytes.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrOutput, maxOutput)
	}
	return b.Buffer.Write(p)
}

// clipped keeps the first limit bytes.
type clipped struct {
	bytes.Buffer
	limit int
}

func (c *clipped) Write(p []byte) (int, error) {
	c.Buffer.Write(p[:min(len(p), max(c.limit-c.Len(), 0))])
	return len(p), nil
}

// execution is an additional process of a container.
type execution struct {
	*Container
	id string
}

// newExec registers a process with the shim. The process does not run yet.
func (c *Container) newExec(ctx context.Context, r Request) (*execution, error) {
	spec, err := bundle.Read(c.StateDir, c.ID)
	if err != nil {
		return nil, err
	}
	process, err := oci.Exec(spec, r.Command, r.TTY)
	if err == nil {
		err = r.Apply(process)
	}
	if err != nil {
		return nil, err
	}
	process.User.Username = alone(r.User, process.User.Username)
	if r.TTY {
		process.ConsoleSize = oci.ConsoleSize(r.Size.Width, r.Size.Height)
	}
	raw, err := json.Marshal(process)
	if err != nil {
		return nil, err
	}
	e := &execution{c, store.NewID()[:32]}
	req := &taskv3.ExecProcessRequest{
		ID: c.ID, ExecID: e.id, Terminal: r.TTY,
		Spec: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Process", Value: raw},
	}
	stdio := containerv1.Stream{}
	if r.Stdin {
		stdio.Stdin = containerv1.OpenStdin
	}
	req.Stdin, req.Stdout, req.Stderr = containerv1.EncodeStdio(stdio)
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	_, err = c.Shim.Task.Exec(ctx, req)
	return e, err
}

// alone prevents a user that is given with a group from getting the groups of the image's /etc/group, as podman
// does.
func alone(given, username string) string {
	if _, group, _ := strings.Cut(given, ":"); group != "" {
		return given + ":" + agentv1.StrictGroups
	}
	return username
}

// failed returns the exit code of a command that could not be run, or 0 for a process that has not ended.
func (e *execution) failed(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	state, err := e.Shim.Task.State(ctx, &taskv3.StateRequest{ID: e.ID, ExecID: e.id})
	if err != nil {
		return 0
	}
	return int(state.GetExitStatus())
}

// cleanUp kills the process if it still runs, and deletes it. It works even if ctx has ended.
func (e *execution) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), link.CallTimeout)
	defer cancel()
	req := &taskv3.DeleteRequest{ID: e.ID, ExecID: e.id}
	if _, err := e.Shim.Task.Delete(ctx, req); err == nil || failure.NotFound(err) {
		return
	}
	_, err := e.Shim.Task.Kill(ctx, &taskv3.KillRequest{ID: e.ID, ExecID: e.id, Signal: uint32(unix.SIGKILL)})
	if err == nil || failure.NotFound(err) {
		waitCtx, cancel := context.WithTimeout(ctx, KillWait)
		_, err = e.Shim.Task.Wait(waitCtx, &taskv3.WaitRequest{ID: e.ID, ExecID: e.id})
		cancel()
	}
	if err == nil {
		_, err = e.Shim.Task.Delete(ctx, req)
	}
	if err != nil && !failure.NotFound(err) {
		e.Log.Warn("end an exec", "container", e.ID, "error", err)
	}
}
