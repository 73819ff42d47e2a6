package cri

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/process"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

func (r *runtimeServer) CreateContainer(
	ctx context.Context, q *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	id, err := r.calls.CreateContainer(ctx, q.GetPodSandboxId(), q.GetConfig(), q.GetSandboxConfig())
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, err
}

func (r *runtimeServer) StartContainer(
	ctx context.Context, q *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, r.calls.StartContainer(ctx, q.GetContainerId())
}

func (r *runtimeServer) StopContainer(
	ctx context.Context, q *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, r.s.StopContainer(ctx, q.GetContainerId(), q.GetTimeout())
}

func (r *runtimeServer) RemoveContainer(
	ctx context.Context, q *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, r.s.RemoveContainer(ctx, q.GetContainerId())
}

func (r *runtimeServer) ListContainers(
	ctx context.Context, q *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	all, err := r.s.ListContainers(ctx, q.GetFilter())
	return &runtimeapi.ListContainersResponse{Containers: all}, err
}

func (r *runtimeServer) StreamContainers(
	q *runtimeapi.StreamContainersRequest, to grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse],
) error {
	all, err := r.s.ListContainers(to.Context(), q.GetFilter())
	return each(all, err, func(part []*runtimeapi.Container) error {
		return to.Send(&runtimeapi.StreamContainersResponse{Containers: part})
	})
}

func (r *runtimeServer) ContainerStatus(
	ctx context.Context, q *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	return r.s.ContainerStatus(ctx, q.GetContainerId(), q.GetVerbose())
}

func (r *runtimeServer) UpdateContainerResources(
	ctx context.Context, q *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	resources := &runtimeapi.ContainerResources{Linux: q.GetLinux(), Windows: q.GetWindows()}
	return &runtimeapi.UpdateContainerResourcesResponse{}, r.calls.UpdateContainerResources(ctx, q.GetContainerId(), resources)
}

func (r *runtimeServer) ReopenContainerLog(
	ctx context.Context, q *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, r.s.ReopenContainerLog(ctx, q.GetContainerId())
}

// syncOutput is the most bytes of each stream that ExecSync returns, so that both fit into one message. The CRI
// requires a runtime to drop the rest.
const syncOutput = maxMessage/2 - 1<<10

func (r *runtimeServer) ExecSync(ctx context.Context, q *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	timeout := time.Duration(q.GetTimeout()) * time.Second
	stdout, stderr, err := r.s.ExecSyncClipped(ctx, q.GetContainerId(), q.GetCmd(), timeout, syncOutput)
	res := &runtimeapi.ExecSyncResponse{Stdout: stdout, Stderr: stderr}
	if exit, ok := errors.AsType[*process.ExitError](err); ok {
		res.ExitCode, err = int32(exit.Code), nil
	}
	return res, err
}

// Exec prepares a stream for a running container. Its command starts when the client connects.
func (r *runtimeServer) Exec(ctx context.Context, q *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if err := r.checkRunning(ctx, q.GetContainerId()); err != nil {
		return nil, err
	}
	return r.streams.GetExec(q)
}

func (r *runtimeServer) Attach(ctx context.Context, q *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if err := r.checkRunning(ctx, q.GetContainerId()); err != nil {
		return nil, err
	}
	return r.streams.GetAttach(q)
}

func (r *runtimeServer) ContainerStats(
	ctx context.Context, q *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	stats, err := r.s.ContainerStats(ctx, q.GetContainerId())
	return &runtimeapi.ContainerStatsResponse{Stats: stats}, err
}

func (r *runtimeServer) ListContainerStats(
	ctx context.Context, q *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	all, err := r.s.ListContainerStats(ctx, q.GetFilter())
	return &runtimeapi.ListContainerStatsResponse{Stats: all}, err
}

func (r *runtimeServer) StreamContainerStats(
	q *runtimeapi.StreamContainerStatsRequest, to grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse],
) error {
	all, err := r.s.ListContainerStats(to.Context(), q.GetFilter())
	return each(all, err, func(part []*runtimeapi.ContainerStats) error {
		return to.Send(&runtimeapi.StreamContainerStatsResponse{ContainerStats: part})
	})
}

func (r *runtimeServer) CheckpointContainer(
	ctx context.Context, q *runtimeapi.CheckpointContainerRequest,
) (*runtimeapi.CheckpointContainerResponse, error) {
	return &runtimeapi.CheckpointContainerResponse{}, r.s.CheckpointContainer(ctx, q)
}

// checkRunning returns an error if the container is not running.
func (r *runtimeServer) checkRunning(ctx context.Context, id string) error {
	res, err := r.s.ContainerStatus(ctx, id, false)
	if err == nil && res.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		err = failure.New(errdefs.ErrFailedPrecondition, "container %s is not running", shortid.Of(id))
	}
	return err
}
