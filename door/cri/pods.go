package cri

import (
	"context"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	service "github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/door/cri/nri"
)

// runtimeServer forwards a client's calls to the service. The embedded interface has no methods, so the compiler checks
// that no call is missing.
type runtimeServer struct {
	runtimeapi.UnsafeRuntimeServiceServer
	s       *service.Service
	calls   calls
	streams *streamServer
}

// calls are the calls that NRI plugins can intercept.
type calls interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error)
	CreateContainer(
		ctx context.Context, pod string, c *runtimeapi.ContainerConfig, p *runtimeapi.PodSandboxConfig,
	) (string, error)
	StartContainer(ctx context.Context, id string) error
	UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error
}

var (
	_ calls = (*service.Service)(nil)
	_ calls = (*nri.Plugins)(nil)
)

func (r *runtimeServer) Version(ctx context.Context, q *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return r.s.Version(ctx, q.GetVersion())
}

func (r *runtimeServer) Status(ctx context.Context, q *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return r.s.Status(ctx, q.GetVerbose())
}

func (r *runtimeServer) RuntimeConfig(
	ctx context.Context, _ *runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	return r.s.RuntimeConfig(ctx)
}

func (r *runtimeServer) UpdateRuntimeConfig(
	ctx context.Context, q *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, r.s.UpdateRuntimeConfig(ctx, q.GetRuntimeConfig())
}

func (r *runtimeServer) RunPodSandbox(
	ctx context.Context, q *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	id, err := r.calls.RunPodSandbox(ctx, q.GetConfig(), q.GetRuntimeHandler())
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, err
}

func (r *runtimeServer) StopPodSandbox(
	ctx context.Context, q *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, r.s.StopPodSandbox(ctx, q.GetPodSandboxId())
}

func (r *runtimeServer) RemovePodSandbox(
	ctx context.Context, q *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, r.s.RemovePodSandbox(ctx, q.GetPodSandboxId())
}

func (r *runtimeServer) PodSandboxStatus(
	ctx context.Context, q *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	return r.s.PodSandboxStatus(ctx, q.GetPodSandboxId(), q.GetVerbose())
}

func (r *runtimeServer) ListPodSandbox(
	ctx context.Context, q *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	all, err := r.s.ListPodSandbox(ctx, q.GetFilter())
	return &runtimeapi.ListPodSandboxResponse{Items: all}, err
}

func (r *runtimeServer) StreamPodSandboxes(
	q *runtimeapi.StreamPodSandboxesRequest, to grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse],
) error {
	all, err := r.s.ListPodSandbox(to.Context(), q.GetFilter())
	return each(all, err, func(part []*runtimeapi.PodSandbox) error {
		return to.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part})
	})
}

func (r *runtimeServer) PodSandboxStats(
	ctx context.Context, q *runtimeapi.PodSandboxStatsRequest,
) (*runtimeapi.PodSandboxStatsResponse, error) {
	stats, err := r.s.PodSandboxStats(ctx, q.GetPodSandboxId())
	return &runtimeapi.PodSandboxStatsResponse{Stats: stats}, err
}

func (r *runtimeServer) ListPodSandboxStats(
	ctx context.Context, q *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	all, err := r.s.ListPodSandboxStats(ctx, q.GetFilter())
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: all}, err
}

func (r *runtimeServer) StreamPodSandboxStats(
	q *runtimeapi.StreamPodSandboxStatsRequest, to grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse],
) error {
	all, err := r.s.ListPodSandboxStats(to.Context(), q.GetFilter())
	return each(all, err, func(part []*runtimeapi.PodSandboxStats) error {
		return to.Send(&runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: part})
	})
}

func (r *runtimeServer) UpdatePodSandboxResources(
	ctx context.Context, q *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return r.s.UpdatePodSandboxResources(ctx, q)
}

func (r *runtimeServer) CheckpointPod(
	ctx context.Context, q *runtimeapi.CheckpointPodRequest,
) (*runtimeapi.CheckpointPodResponse, error) {
	return &runtimeapi.CheckpointPodResponse{}, r.s.CheckpointPod(ctx, q)
}

func (r *runtimeServer) RestorePod(ctx context.Context, q *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return r.s.RestorePod(ctx, q)
}

// PortForward returns a stream URL for any port of the pod, because kubectl port-forward names the ports only after it
// has connected.
func (r *runtimeServer) PortForward(ctx context.Context, q *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	if _, err := r.s.PodSandboxStatus(ctx, q.GetPodSandboxId(), false); err != nil {
		return nil, err
	}
	return r.streams.GetPortForward(q)
}
