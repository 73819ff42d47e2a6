package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/bundle"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// maxOutput bounds each stream of ExecSync, in bytes, as other runtimes do.
const maxOutput = 16 << 20

// ExitError is returned by ExecSync for a command that ran and exited with another code than 0. It has the methods
// of k8s.io/utils/exec.ExitError.
type ExitError struct{ Code int }

// Error returns one line.
func (e *ExitError) Error() string { return fmt.Sprintf("command ended with exit code %d", e.Code) }

// String returns the same as Error.
func (e *ExitError) String() string { return e.Error() }

// Exited returns true.
func (e *ExitError) Exited() bool { return true }

// ExitStatus returns Code.
func (e *ExitError) ExitStatus() int { return e.Code }

// ErrOutput is matched by the error of ExecSync if the command wrote more than 16 MiB to one stream. The command
// has been killed.
var ErrOutput = errors.New("the command's output is too long")

// ExecSync runs a command in a running container and returns its output. The error is an *ExitError if the command
// exits with another code than 0, does not exist (127) or cannot be run (126). After a timeout above 0 the command
// is killed, and the error's code is codes.DeadlineExceeded.
func (e *Engine) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	return e.execSync(ctx, id, cmd, timeout, func() output { return &bounded{} })
}

// ExecSyncClipped is like ExecSync, but keeps only the first limit bytes of each stream. It discards the rest
// without an error.
func (e *Engine) ExecSyncClipped(
	ctx context.Context,
	id string,
	cmd []string,
	timeout time.Duration,
	limit int,
) (stdout, stderr []byte, err error) {
	return e.execSync(ctx, id, cmd, timeout, func() output { return &clipped{limit: limit} })
}

// output collects the output of a command on one stream.
type output interface {
	io.Writer
	Bytes() []byte
}

// execSync counts the timeout from the moment at which the command runs. The time that this host takes to start it
// says nothing about the container.
func (e *Engine) execSync(
	ctx context.Context,
	id string,
	cmd []string,
	timeout time.Duration,
	newOutput func() output,
) (stdout, stderr []byte, err error) {
	c, shim, err := e.running(id)
	if err != nil {
		return nil, nil, err
	}
	starting, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	exec, err := c.newExec(starting, shim, ExecRequest{Command: cmd})
	if err != nil {
		return nil, nil, failure.Wrap(err, "exec in container %s", c.Name)
	}
	defer exec.cleanUp(ctx)
	res, err := shim.Ext.Open(starting, exec.open(false, true, true))
	if err != nil {
		return nil, nil, failure.Wrap(err, "exec in container %s", c.Name)
	}
	carrier, err := stream.Dial(starting, shim.Streams, res.GetToken())
	if err != nil {
		return nil, nil, failure.Wrap(err, "exec in container %s", c.Name)
	}
	out, errOut := newOutput(), newOutput()
	result := make(chan error, 1)
	var exitCode int
	running, expire := context.WithCancelCause(ctx)
	defer expire(nil)
	go func() {
		var err error
		exitCode, err = stream.Stdio{Stdout: out, Stderr: errOut}.Run(running, carrier)
		result <- err
	}()
	if err := exec.start(starting); err != nil {
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
		err = &ExitError{exitCode}
		return out.Bytes(), errOut.Bytes(), err
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

// running returns a running container and its shim.
func (e *Engine) running(id string) (*container, *link.Conn, error) {
	c, err := e.findContainer(id)
	if err != nil {
		return nil, nil, err
	}
	c.pod.mu.Lock()
	state := c.state()
	c.pod.mu.Unlock()
	if state != ContainerRunning {
		return nil, nil, failure.New(errdefs.ErrFailedPrecondition, "container %s is %s, not running", c.Name, state)
	}
	shim, err := c.pod.shim()
	return c, shim, err
}

// execution is an additional process of a container.
type execution struct {
	c    *container
	shim *link.Conn
	id   string
}

// newExec registers a process with the shim. The process does not run yet.
func (c *container) newExec(ctx context.Context, shim *link.Conn, r ExecRequest) (*execution, error) {
	spec, err := bundle.Read(c.pod.e.store.StateDir(c.pod.id), c.ID)
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
	e := &execution{c: c, shim: shim, id: store.NewID()[:32]}
	req := &taskv3.ExecProcessRequest{
		ID: c.ID, ExecID: e.id, Terminal: r.TTY,
		Spec: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Process", Value: raw},
	}
	stdio := containerv1.Stream{}
	if r.Stdin {
		stdio.Stdin = containerv1.OpenStdin
	}
	req.Stdin, req.Stdout, req.Stderr = containerv1.EncodeStdio(stdio)
	callCtx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	_, err = shim.Task.Exec(callCtx, req)
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

func (e *execution) start(ctx context.Context) error {
	_, err := e.shim.Task.Start(ctx, &taskv3.StartRequest{ID: e.c.ID, ExecID: e.id})
	return err
}

func (e *execution) open(stdin, stdout, stderr bool) *shimv1.OpenRequest {
	return &shimv1.OpenRequest{
		Kind: shimv1.OpenRequest_ATTACH, ContainerId: e.c.ID, ExecId: e.id, Stdin: stdin, Stdout: stdout, Stderr: stderr,
	}
}

// failed returns the exit code of a command that could not be run, or 0 for a process that has not ended.
func (e *execution) failed(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	state, err := e.shim.Task.State(ctx, &taskv3.StateRequest{ID: e.c.ID, ExecID: e.id})
	if err != nil {
		return 0
	}
	return int(state.GetExitStatus())
}

// cleanUp kills the process if it still runs, and deletes it. It works even if ctx has ended.
func (e *execution) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), link.CallTimeout)
	defer cancel()
	req := &taskv3.DeleteRequest{ID: e.c.ID, ExecID: e.id}
	if _, err := e.shim.Task.Delete(ctx, req); err == nil || failure.NotFound(err) {
		return
	}
	_, err := e.shim.Task.Kill(ctx, &taskv3.KillRequest{ID: e.c.ID, ExecID: e.id, Signal: uint32(unix.SIGKILL)})
	if err == nil || failure.NotFound(err) {
		waitCtx, cancel := context.WithTimeout(ctx, killWait)
		_, err = e.shim.Task.Wait(waitCtx, &taskv3.WaitRequest{ID: e.c.ID, ExecID: e.id})
		cancel()
	}
	if err == nil {
		_, err = e.shim.Task.Delete(ctx, req)
	}
	if err != nil && !failure.NotFound(err) {
		e.c.pod.e.log.Warn("end an exec", "container", e.c.ID, "error", err)
	}
}

// TerminalSize is the size of a terminal.
type TerminalSize = stream.Size

// ExecRequest asks for an additional process of a running container.
type ExecRequest struct {
	Container             string // id, or a unique prefix
	Command               []string
	TTY                   bool
	Stdin, Stdout, Stderr bool // the wanted streams, at least one
	// Size is the size of the terminal when the command starts; zero means unknown.
	Size TerminalSize
	oci.Override
}

// Exec prepares a command in a running container and returns its streams. The command runs when a client connects
// to them, unless that takes longer than a minute. If the command cannot be run, the streams report exit code 126
// or 127. The process is deleted after its exit or with its container.
func (e *Engine) Exec(ctx context.Context, r ExecRequest) (Stream, error) {
	c, shim, err := e.running(r.Container)
	if err != nil {
		return Stream{}, err
	}
	if !r.Stdin && !r.Stdout && !r.Stderr {
		return Stream{}, failure.Invalid("exec in container %s: at least one of stdin, stdout and stderr is required", c.Name)
	}
	exec, err := c.newExec(ctx, shim, r)
	if err != nil {
		return Stream{}, failure.Wrap(err, "exec in container %s", c.Name)
	}
	request := exec.open(r.Stdin, r.Stdout, r.Stderr && !r.TTY)
	request.Start = true
	s, err := openStream(ctx, shim, request)
	if err != nil {
		exec.cleanUp(ctx)
	}
	return s, failure.Wrap(err, "exec in container %s", c.Name)
}
