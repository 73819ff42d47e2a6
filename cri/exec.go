package cri

import (
	"context"
	"net/url"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/process"
)

// ExecSync runs a command in a running container and returns its output. A missing or not executable command and a
// non-zero exit code are an *process.ExitError (127, 126). After timeout, if positive, the command is killed, and the
// error has codes.DeadlineExceeded.
func (s *Service) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	c, err := s.engine.Running(id)
	if err != nil {
		return nil, nil, err
	}
	return c.Output(ctx, cmd, timeout)
}

// ExecSyncClipped is ExecSync that returns only the first limit bytes of each stream, and discards the rest without an
// error.
func (s *Service) ExecSyncClipped(
	ctx context.Context, id string, cmd []string, timeout time.Duration, limit int,
) (stdout, stderr []byte, err error) {
	c, err := s.engine.Running(id)
	if err != nil {
		return nil, nil, err
	}
	return c.Clipped(ctx, cmd, timeout, limit)
}

// Exec prepares a command in a running container and returns the URL of its streams, from link.Stream.URL. The
// command runs when a client connects; see process.Container.
func (s *Service) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	c, err := s.engine.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	stream, err := c.Exec(ctx, process.Request{
		Command: r.GetCmd(), TTY: r.GetTty(),
		Streams: process.Streams{Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr()},
	})
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ExecResponse{Url: stream.URL()}, nil
}

// Attach returns the URL of a running container's streams; see Exec.
func (s *Service) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	c, err := s.engine.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	stream, err := c.Attach(ctx, process.Streams{Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr() && !r.GetTty()})
	if err != nil {
		return nil, err
	}
	return &runtimeapi.AttachResponse{Url: stream.URL()}, nil
}

// maxForwards bounds the ports of one PortForward. Each holds a stream of the pod until it is used.
const maxForwards = 64

// PortForward returns the URL of connections to ports of the pod, one for each port: raw bytes, with half close. Its
// query has a port and a token for each, in the request's order. The connection to a port is made when its client
// connects.
func (s *Service) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	if n := len(r.GetPort()); n < 1 || n > maxForwards {
		return nil, failure.Invalid("port-forward to pod %.12s: %d ports, but 1 to %d are possible", r.GetPodSandboxId(), n, maxForwards)
	}
	p, err := s.find(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: link.Scheme}
	query := url.Values{}
	for _, port := range r.GetPort() {
		stream, err := s.engine.PortForward(ctx, p.ID, int(port))
		if err != nil {
			return nil, err // unused streams expire
		}
		u.Path = stream.Socket
		query.Add("port", strconv.Itoa(int(port)))
		query.Add("token", stream.Token)
	}
	u.RawQuery = query.Encode()
	return &runtimeapi.PortForwardResponse{Url: u.String()}, nil
}
