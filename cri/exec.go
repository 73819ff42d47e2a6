package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// ExecSync runs a command in a running container and returns what it wrote. A command
// that is missing or cannot be run, and one that ends with another code than 0, is an
// *engine.ExitError (127, 126). After timeout, if it is more than 0, the command is
// killed, and the error's code is codes.DeadlineExceeded.
func (s *Service) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	return s.engine.ExecSync(ctx, id, cmd, timeout)
}

// ExecSyncClipped is ExecSync for who wants the first limit bytes of each stream only:
// the rest is thrown away, and no error.
func (s *Service) ExecSyncClipped(
	ctx context.Context, id string, cmd []string, timeout time.Duration, limit int,
) (stdout, stderr []byte, err error) {
	return s.engine.ExecSyncClipped(ctx, id, cmd, timeout, limit)
}

// Exec prepares a command in a running container and returns the URL of its streams, as
// engine.Stream.URL makes it. The command runs when they are connected to; see
// engine.Engine.Exec.
func (s *Service) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	stream, err := s.engine.Exec(ctx, engine.ExecRequest{
		Container: r.GetContainerId(), Command: r.GetCmd(), TTY: r.GetTty(),
		Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(),
	})
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ExecResponse{Url: stream.URL()}, nil
}

// Attach returns the URL of a running container's streams; see Exec.
func (s *Service) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	stream, err := s.engine.Attach(ctx, engine.AttachRequest{
		Container: r.GetContainerId(), Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr() && !r.GetTty(),
	})
	if err != nil {
		return nil, err
	}
	return &runtimeapi.AttachResponse{Url: stream.URL()}, nil
}

// PortForward returns the URL of one connection to a port of the pod: raw bytes, with
// half close. Each connection needs a URL of its own.
func (s *Service) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	if len(r.GetPort()) != 1 {
		return nil, failure.Invalid("port-forward to pod %.12s: one port, not %v", r.GetPodSandboxId(), r.GetPort())
	}
	p, err := s.find(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	stream, err := s.engine.PortForward(ctx, p.ID, int(r.GetPort()[0]))
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PortForwardResponse{Url: stream.URL()}, nil
}
