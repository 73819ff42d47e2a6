package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

const (
	// maxOutput bounds each stream of ExecSync, in bytes, as other runtimes do.
	maxOutput = 16 << 20
	// maxSpec bounds a stored specification, in bytes.
	maxSpec = 4 << 20
)

// ExitError is returned by ExecSync for a command that ran and ended with
// another code than 0. It has the methods of k8s.io/utils/exec.ExitError.
type ExitError struct{ Code int }

// Error is one line.
func (e *ExitError) Error() string { return fmt.Sprintf("command ended with exit code %d", e.Code) }

// String is Error's.
func (e *ExitError) String() string { return e.Error() }

// Exited is always true.
func (e *ExitError) Exited() bool { return true }

// ExitStatus is Code.
func (e *ExitError) ExitStatus() int { return e.Code }

// ErrOutput is matched by the error of an ExecSync whose command wrote more
// than 16 MiB to one stream. The command has been killed.
var ErrOutput = errors.New("the command writes too much")

// ExecSync runs a command in a running container and returns what it wrote. A
// command that is missing or cannot be run, and one that ends with another
// code than 0, is an *ExitError (127, 126). After timeout, if it is more than
// 0, the command is killed, and the error's code is codes.DeadlineExceeded.
func (s *Service) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	return s.execSync(ctx, id, cmd, timeout, func() output { return &bounded{} })
}

// ExecSyncClipped is ExecSync for who wants the first limit bytes of each stream
// only: the rest is thrown away, and no error.
func (s *Service) ExecSyncClipped(ctx context.Context, id string, cmd []string, timeout time.Duration, limit int) (stdout, stderr []byte, err error) {
	return s.execSync(ctx, id, cmd, timeout, func() output { return &clipped{limit: limit} })
}

// output takes what a command writes to one stream.
type output interface {
	io.Writer
	Bytes() []byte
}

func (s *Service) execSync(ctx context.Context, id string, cmd []string, timeout time.Duration, newOutput func() output) (stdout, stderr []byte, err error) {
	c, shim, err := s.running(id)
	if err != nil {
		return nil, nil, err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	exec, err := c.newExec(ctx, shim, cmd, false, false)
	if err != nil {
		return nil, nil, fail(err, "exec in container %s", c.name)
	}
	defer exec.end(ctx)
	res, err := shim.ext.Open(ctx, exec.open(false, true, true))
	if err != nil {
		return nil, nil, fail(err, "exec in container %s", c.name)
	}
	carrier, err := stream.Dial(ctx, shim.streams, res.GetToken())
	if err != nil {
		return nil, nil, fail(err, "exec in container %s", c.name)
	}
	out, errOut := newOutput(), newOutput()
	result := make(chan error, 1)
	var exitCode int
	go func() {
		var err error
		exitCode, err = stream.Stdio{Stdout: out, Stderr: errOut}.Run(ctx, carrier)
		result <- err
	}()
	if err := exec.start(ctx); err != nil {
		carrier.Close()
		<-result //nolint:errcheck // that it has ended is what counts
		if exit := exec.failed(ctx); exit != 0 {
			return nil, []byte(message(err) + "\n"), &ExitError{exit}
		}
		return nil, nil, fail(err, "exec in container %s", c.name)
	}
	err = <-result
	if err != nil && ctx.Err() != nil {
		err = errorf(code(ctx.Err()), "exec in container %s: not done within %v", c.name, timeout)
	}
	if err == nil && exitCode != 0 {
		err = &ExitError{exitCode}
		return out.Bytes(), errOut.Bytes(), err
	}
	return out.Bytes(), errOut.Bytes(), fail(err, "exec in container %s", c.name)
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

// running returns a container that runs, and its shim.
func (s *Service) running(id string) (*container, *conn, error) {
	c, err := s.findContainer(id)
	if err != nil {
		return nil, nil, err
	}
	c.pod.mu.Lock()
	state := c.state()
	c.pod.mu.Unlock()
	if state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, nil, errorf(codes.FailedPrecondition, "container %s is %s, not running", c.name, stateName(state))
	}
	shim, err := c.pod.shim()
	return c, shim, err
}

// execution is one more process of a container.
type execution struct {
	c    *container
	shim *conn
	id   string
}

// newExec registers a process with the shim; nothing runs yet.
func (c *container) newExec(ctx context.Context, shim *conn, cmd []string, tty, stdin bool) (*execution, error) {
	spec, err := c.spec()
	if err != nil {
		return nil, err
	}
	process, err := oci.Exec(spec, cmd, tty)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(process)
	if err != nil {
		return nil, err
	}
	e := &execution{c: c, shim: shim, id: store.NewID()[:32]}
	stdio := containerv1.Stream{}
	if stdin {
		stdio.Stdin = containerv1.OpenStdin
	}
	req := &taskv3.ExecProcessRequest{
		ID: c.ID, ExecID: e.id, Terminal: tty,
		Spec: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Process", Value: raw},
	}
	req.Stdin, req.Stdout, req.Stderr = containerv1.EncodeStdio(stdio)
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = shim.task.Exec(callCtx, req)
	return e, err
}

func (e *execution) start(ctx context.Context) error {
	_, err := e.shim.task.Start(ctx, &taskv3.StartRequest{ID: e.c.ID, ExecID: e.id})
	return err
}

func (e *execution) open(stdin, stdout, stderr bool) *shimv1.OpenRequest {
	return &shimv1.OpenRequest{
		Kind: shimv1.OpenRequest_ATTACH, ContainerId: e.c.ID, ExecId: e.id, Stdin: stdin, Stdout: stdout, Stderr: stderr,
	}
}

// failed is the code of a command that could not be run, 0 for a process that
// has not ended.
func (e *execution) failed(ctx context.Context) int {
	state, err := e.shim.task.State(ctx, &taskv3.StateRequest{ID: e.c.ID, ExecID: e.id})
	if err != nil {
		return 0
	}
	return int(state.GetExitStatus())
}

// end kills the process, if it still runs, and forgets it. It works when ctx
// has ended.
func (e *execution) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	req := &taskv3.DeleteRequest{ID: e.c.ID, ExecID: e.id}
	if _, err := e.shim.task.Delete(ctx, req); err == nil || notFound(err) {
		return
	}
	_, err := e.shim.task.Kill(ctx, &taskv3.KillRequest{ID: e.c.ID, ExecID: e.id, Signal: sigKILL})
	if err == nil || notFound(err) {
		waitCtx, cancel := context.WithTimeout(ctx, killWait)
		_, err = e.shim.task.Wait(waitCtx, &taskv3.WaitRequest{ID: e.c.ID, ExecID: e.id})
		cancel()
	}
	if err == nil {
		_, err = e.shim.task.Delete(ctx, req)
	}
	if err != nil && !notFound(err) {
		e.c.pod.s.log.Warn("end an exec", "container", e.c.ID, "error", err)
	}
}

// spec reads the container's specification from its bundle. The directory
// belongs to the pod's user, who gains nothing by changing it: it is said to
// the pod's own guest only.
func (c *container) spec() (*specs.Spec, error) {
	root, err := os.OpenRoot(c.pod.s.store.StateDir(c.pod.id))
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Join(c.ID, specFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSpec))
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	spec := new(specs.Spec)
	if err := json.Unmarshal(raw, spec); err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	return spec, nil
}

// Exec starts a command in a running container and returns the URL of its
// streams, "bulkhead+unix://PATH?token=TOKEN": the caller dials PATH with
// package shim/stream. What the command writes waits for that. The process is
// forgotten when its stream has ended, or with its container.
func (s *Service) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	c, shim, err := s.running(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !req.GetStdin() && !req.GetStdout() && !req.GetStderr() {
		return nil, invalid("exec in container %s: one of stdin, stdout and stderr must be wanted", c.name)
	}
	exec, err := c.newExec(ctx, shim, req.GetCmd(), req.GetTty(), req.GetStdin())
	if err != nil {
		return nil, fail(err, "exec in container %s", c.name)
	}
	address, err := streamURL(ctx, shim, exec.open(req.GetStdin(), req.GetStdout(), req.GetStderr() && !req.GetTty()))
	if err == nil {
		err = exec.start(ctx)
	}
	if err != nil {
		if exit := exec.failed(ctx); exit != 0 {
			err = &Error{Code: code(err), Text: message(err), Err: &ExitError{exit}}
		}
		exec.end(ctx)
		return nil, fail(err, "exec in container %s", c.name)
	}
	s.spawn(func() { exec.forget(s.ctx) })
	return &runtimeapi.ExecResponse{Url: address}, nil
}

// streamPatience is how long the end of a process waits for its reader.
const streamPatience = time.Minute

// forget deletes the process some time after its end, unless the shim has: which
// it does when the client has heard of the end.
func (e *execution) forget(ctx context.Context) {
	if _, err := e.shim.task.Wait(ctx, &taskv3.WaitRequest{ID: e.c.ID, ExecID: e.id}); err != nil {
		return // the engine or the pod is gone
	}
	select {
	case <-time.After(streamPatience):
		e.end(ctx)
	case <-e.shim.done:
	case <-ctx.Done():
	}
}

// Attach returns the URL of a running container's streams; see Exec.
func (s *Service) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	c, shim, err := s.running(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	address, err := streamURL(ctx, shim, &shimv1.OpenRequest{
		Kind: shimv1.OpenRequest_ATTACH, ContainerId: c.ID,
		Stdin: req.GetStdin(), Stdout: req.GetStdout(), Stderr: req.GetStderr() && !req.GetTty(),
	})
	if err != nil {
		return nil, fail(err, "attach to container %s", c.name)
	}
	return &runtimeapi.AttachResponse{Url: address}, nil
}

// PortForward returns the URL of one connection to a port of the pod: raw
// bytes, with half close. Each connection needs a URL of its own.
func (s *Service) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	p, shim, err := s.live(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if len(req.GetPort()) != 1 || req.GetPort()[0] < 1 || req.GetPort()[0] > 65535 {
		return nil, invalid("port-forward to pod %s: one port from 1 to 65535, not %v", short(p.id), req.GetPort())
	}
	address, err := streamURL(ctx, shim, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_PORT_FORWARD, Port: uint32(req.GetPort()[0])})
	if err != nil {
		return nil, fail(err, "port-forward to pod %s", short(p.id))
	}
	return &runtimeapi.PortForwardResponse{Url: address}, nil
}

// live returns a pod that has a shim.
func (s *Service) live(id string) (*pod, *conn, error) {
	p, err := s.find(id)
	if err != nil {
		return nil, nil, err
	}
	shim, err := p.shim()
	return p, shim, err
}

// Scheme is that of the URLs of streams.
const Scheme = "bulkhead+unix"

func streamURL(ctx context.Context, c *conn, req *shimv1.OpenRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.ext.Open(ctx, req)
	if err != nil {
		return "", err
	}
	u := url.URL{Scheme: Scheme, Path: c.streams, RawQuery: url.Values{"token": {res.GetToken()}}.Encode()}
	return u.String(), nil
}
