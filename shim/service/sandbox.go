package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// The states of SandboxStatus, as in containerd's CRI plugin.
const (
	stateReady    = "SANDBOX_READY"
	stateNotReady = "SANDBOX_NOTREADY"
)

// exitKilled is the exit status of a VM that ended without Stop.
const exitKilled = 137

// pod is containerd's Sandbox service.
type pod struct{ *Services }

var _ sandboxv1.TTRPCSandboxService = pod{}

func (p pod) CreateSandbox(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.CreateSandboxResponse, error) {
	if err := p.mine(r.SandboxID); err != nil {
		return nil, err
	}
	if url := r.GetOptions().GetTypeUrl(); url != layout.ConfigType {
		return nil, invalid("create sandbox: options of type %q, want %s", url, layout.ConfigType)
	}
	var config sandbox.Config
	if err := json.Unmarshal(r.Options.Value, &config); err != nil {
		return nil, invalid("create sandbox: read the options: %v", err)
	}
	if config.ID != p.o.ID {
		return nil, invalid("create sandbox: the configuration is for sandbox %q, but this is the shim of %s", config.ID, p.o.ID)
	}
	if len(config.Cards) > card.Most {
		return nil, invalid("create sandbox: %d further interfaces: must be at most %d", len(config.Cards), card.Most)
	}
	var names []string
	for i := range config.Cards {
		names = append(names, layout.Card(i))
	}
	cards, err := p.removeFiles(names...)
	if err != nil {
		return nil, toStatus(err)
	}
	scratch, err := p.o.Files.Remove(layout.Scratch)
	if err != nil && !errors.Is(err, fdpass.ErrNoFile) {
		fdpass.CloseAll(cards)
		return nil, toStatus(err)
	}
	if err := p.o.Sandbox.Create(ctx, config, sandbox.Files{Scratch: scratch, Cards: cards}); err != nil {
		return nil, toStatus(err)
	}
	return &sandboxv1.CreateSandboxResponse{}, nil
}

func (p pod) StartSandbox(ctx context.Context, r *sandboxv1.StartSandboxRequest) (*sandboxv1.StartSandboxResponse, error) {
	if err := p.mine(r.SandboxID); err != nil {
		return nil, err
	}
	if err := p.join(ctx, "start", p.o.Sandbox.Start); err != nil {
		return nil, toStatus(err)
	}
	st := p.o.Sandbox.Status()
	return &sandboxv1.StartSandboxResponse{Pid: uint32(st.VM.PID), CreatedAt: timestamppb.New(st.CreatedAt)}, nil
}

func (p pod) Platform(_ context.Context, r *sandboxv1.PlatformRequest) (*sandboxv1.PlatformResponse, error) {
	if err := p.mine(r.SandboxID); err != nil {
		return nil, err
	}
	return &sandboxv1.PlatformResponse{Platform: &types.Platform{OS: "linux", Architecture: runtime.GOARCH}}, nil
}

func (p pod) StopSandbox(ctx context.Context, r *sandboxv1.StopSandboxRequest) (*sandboxv1.StopSandboxResponse, error) {
	if err := p.mine(r.SandboxID); err != nil {
		return nil, err
	}
	if r.TimeoutSecs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.TimeoutSecs)*time.Second)
		defer cancel()
	}
	if err := p.join(ctx, "stop", p.o.Sandbox.Stop); err != nil {
		return nil, toStatus(err)
	}
	return &sandboxv1.StopSandboxResponse{}, nil
}

func (p pod) WaitSandbox(ctx context.Context, r *sandboxv1.WaitSandboxRequest) (*sandboxv1.WaitSandboxResponse, error) {
	if err := p.mine(r.SandboxID); err != nil {
		return nil, err
	}
	reason, err := p.o.Sandbox.WaitStopped(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	res := &sandboxv1.WaitSandboxResponse{ExitedAt: timestamp(p.o.Sandbox.Status().StoppedAt)}
	if reason == sandbox.ReasonVMKilled || reason == sandbox.ReasonOOMKilled {
		res.ExitStatus = exitKilled
	}
	return res, nil
}

func (p pod) SandboxStatus(_ context.Context, r *sandboxv1.SandboxStatusRequest) (*sandboxv1.SandboxStatusResponse, error) {
	if err := p.mine(r.SandboxID); err != nil {
		return nil, err
	}
	st := p.o.Sandbox.Status()
	res := &sandboxv1.SandboxStatusResponse{
		SandboxID: p.o.ID, Pid: uint32(st.VM.PID), State: stateNotReady,
		CreatedAt: timestamp(st.CreatedAt), ExitedAt: timestamp(st.StoppedAt),
	}
	if st.State == sandbox.Running || st.State == sandbox.Paused {
		res.State = stateReady
	}
	if r.Verbose {
		res.Info = map[string]string{
			"state": string(st.State), "kernel": st.Guest.Kernel, "memoryMiB": fmt.Sprint(st.MemoryMiB),
			"exitReason": st.ExitReason,
		}
	}
	return res, nil
}

func (p pod) PingSandbox(_ context.Context, r *sandboxv1.PingRequest) (*sandboxv1.PingResponse, error) {
	return &sandboxv1.PingResponse{}, p.mine(r.SandboxID)
}

// ShutdownSandbox kills the VM, deletes the sandbox's files and ends the shim. It is idempotent.
func (p pod) ShutdownSandbox(ctx context.Context, r *sandboxv1.ShutdownSandboxRequest) (*sandboxv1.ShutdownSandboxResponse, error) {
	if err := p.mine(r.SandboxID); err != nil {
		return nil, err
	}
	err := p.join(ctx, "shutdown", func(ctx context.Context) error { return p.o.Sandbox.Delete(ctx, true) })
	if err != nil {
		return nil, toStatus(err)
	}
	p.o.Shutdown()
	return &sandboxv1.ShutdownSandboxResponse{}, nil
}

func (p pod) SandboxMetrics(ctx context.Context, r *sandboxv1.SandboxMetricsRequest) (*sandboxv1.SandboxMetricsResponse, error) {
	if err := p.mine(r.SandboxID); err != nil {
		return nil, err
	}
	st, err := extension(p).Stats(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &sandboxv1.SandboxMetricsResponse{Metrics: &types.Metric{
		Timestamp: timestamppb.Now(), ID: p.o.ID, Data: &anypb.Any{TypeUrl: agentv1.PodStatsType, Value: st.GetStats()},
	}}, nil
}

func (p pod) UpdateSandbox(context.Context, *sandboxv1.UpdateSandboxRequest) (*sandboxv1.UpdateSandboxResponse, error) {
	return nil, toStatus(fmt.Errorf("update of a sandbox: %w", errors.ErrUnsupported))
}

// mine refuses a request for another pod.
func (s *Services) mine(id string) error {
	if id != s.o.ID {
		return toStatus(fmt.Errorf("sandbox %.80q: %w: this is the shim of %s", id, errdefs.ErrNotFound, s.o.ID))
	}
	return nil
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
