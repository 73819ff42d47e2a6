package containerd

import (
	"context"
	"fmt"
	"runtime"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/containerd/api/types"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bulkhead-project/bulkhead/door/containerd/events"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

// The states of SandboxStatus, as in the CRI.
const (
	stateReady    = "SANDBOX_READY"
	stateNotReady = "SANDBOX_NOTREADY"
)

// sandboxes is containerd's Sandbox service, for sandboxer = "shim".
type sandboxes struct{ *Services }

var _ sandboxv1.TTRPCSandboxService = sandboxes{}

func (s sandboxes) CreateSandbox(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.CreateSandboxResponse, error) {
	return answer(&sandboxv1.CreateSandboxResponse{}, s.createPod(ctx, r))
}

func (s sandboxes) StartSandbox(ctx context.Context, r *sandboxv1.StartSandboxRequest) (*sandboxv1.StartSandboxResponse, error) {
	p, err := s.podOf(r.SandboxID)
	if err == nil {
		err = s.startPod(ctx, p)
	}
	if err != nil {
		return nil, grpccode.Status(err)
	}
	_, pid := p.end()
	return &sandboxv1.StartSandboxResponse{Pid: uint32(pid), CreatedAt: timestamppb.New(p.createdAt)}, nil
}

func (s sandboxes) Platform(_ context.Context, r *sandboxv1.PlatformRequest) (*sandboxv1.PlatformResponse, error) {
	_, err := s.podOf(r.SandboxID)
	return answer(&sandboxv1.PlatformResponse{Platform: &types.Platform{OS: "linux", Architecture: runtime.GOARCH}}, err)
}

func (s sandboxes) StopSandbox(ctx context.Context, r *sandboxv1.StopSandboxRequest) (*sandboxv1.StopSandboxResponse, error) {
	p, err := s.podOf(r.SandboxID)
	if err != nil {
		return nil, grpccode.Status(err)
	}
	if r.TimeoutSecs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.TimeoutSecs)*time.Second)
		defer cancel()
	}
	return answer(&sandboxv1.StopSandboxResponse{}, s.stopPod(ctx, p))
}

func (s sandboxes) WaitSandbox(ctx context.Context, r *sandboxv1.WaitSandboxRequest) (*sandboxv1.WaitSandboxResponse, error) {
	p, err := s.podOf(r.SandboxID)
	if err == nil {
		err = p.awaitEnd(ctx)
	}
	if err != nil {
		return nil, grpccode.Status(err)
	}
	exit, _ := p.end()
	return &sandboxv1.WaitSandboxResponse{ExitStatus: uint32(exit.Status), ExitedAt: timestamppb.New(exit.At)}, nil
}

func (s sandboxes) SandboxStatus(_ context.Context, r *sandboxv1.SandboxStatusRequest) (*sandboxv1.SandboxStatusResponse, error) {
	p, err := s.podOf(r.SandboxID)
	if err != nil {
		return nil, grpccode.Status(err)
	}
	status, _ := p.state()
	exit, pid := p.end()
	res := &sandboxv1.SandboxStatusResponse{
		SandboxID: p.container, Pid: uint32(pid), State: stateNotReady, CreatedAt: timestamppb.New(p.createdAt),
	}
	switch status {
	case tasktypes.Status_RUNNING:
		res.State = stateReady
	case tasktypes.Status_STOPPED:
		res.ExitedAt = timestamppb.New(exit.At)
	}
	if r.Verbose {
		res.Info = map[string]string{"state": word(status), "bundle": p.bundle}
	}
	return res, nil
}

func (s sandboxes) PingSandbox(_ context.Context, r *sandboxv1.PingRequest) (*sandboxv1.PingResponse, error) {
	_, err := s.podOf(r.SandboxID)
	return answer(&sandboxv1.PingResponse{}, err)
}

// ShutdownSandbox removes the pod and ends the front. It succeeds if the pod was never created.
func (s sandboxes) ShutdownSandbox(ctx context.Context, r *sandboxv1.ShutdownSandboxRequest) (*sandboxv1.ShutdownSandboxResponse, error) {
	if p := s.current(); p != nil && p.container == r.SandboxID {
		if err := s.removePod(ctx, p); err != nil {
			return nil, grpccode.Status(err)
		}
	}
	s.EndIfIdle()
	return &sandboxv1.ShutdownSandboxResponse{}, nil
}

func (s sandboxes) SandboxMetrics(ctx context.Context, r *sandboxv1.SandboxMetricsRequest) (*sandboxv1.SandboxMetricsResponse, error) {
	p, err := s.podOf(r.SandboxID)
	if err != nil {
		return nil, grpccode.Status(err)
	}
	m, err := s.o.Runtime.Stats(ctx, p.container)
	if err != nil {
		return nil, grpccode.Status(err)
	}
	packed, err := events.Any(m)
	return answer(&sandboxv1.SandboxMetricsResponse{
		Metrics: &types.Metric{Timestamp: timestamppb.Now(), ID: p.container, Data: packed},
	}, err)
}

// UpdateSandbox is unsupported, which containerd accepts.
func (s sandboxes) UpdateSandbox(context.Context, *sandboxv1.UpdateSandboxRequest) (*sandboxv1.UpdateSandboxResponse, error) {
	return nil, grpccode.Status(fmt.Errorf("the update of a sandbox is %w", errUnsupported))
}
