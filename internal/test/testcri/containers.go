package testcri

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer creates a container.
func (r *Runtime) CreateContainer(
	ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	s := r.sandboxes[sandbox]
	if s == nil {
		return "", status.Error(codes.NotFound, "no sandbox")
	}
	id := r.id()
	r.containers[id] = &container{sandbox, config, &runtimeapi.ContainerStatus{
		Id: id, Metadata: config.Metadata, CreatedAt: time.Now().UnixNano(), Image: config.Image, ImageRef: "here",
		Labels: config.Labels, Annotations: config.Annotations,
		Resources: &runtimeapi.ContainerResources{Linux: config.Linux.GetResources()},
	}}
	r.of(s.Labels[uidLabel]).containers[id] = true
	return id, nil
}

// StartContainer starts a container. It runs until it is stopped.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return status.Error(codes.NotFound, "no container")
	}
	c.status.State, c.status.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	r.notify(r.sandboxes[c.sandbox])
	return nil
}

// exit ends a container. It is called with mu held.
func (r *Runtime) exit(c *container, code int32) {
	if c == nil || c.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.status.State, c.status.ExitCode, c.status.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano()
	r.notify(r.sandboxes[c.sandbox])
}

// StopContainer stops a container at once.
func (r *Runtime) StopContainer(ctx context.Context, id string, _ int64) error {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	r.exit(r.containers[id], 143)
	return nil
}

// RemoveContainer removes a container.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil
	}
	delete(r.containers, id)
	if s := r.sandboxes[c.sandbox]; s != nil {
		delete(r.of(s.Labels[uidLabel]).containers, id)
	}
	return nil
}

// ListContainers lists the containers of one pod.
func (r *Runtime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) (out []*runtimeapi.Container, err error) {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	p := r.pods[filter.GetLabelSelector()[uidLabel]]
	if p == nil {
		return nil, nil
	}
	for id := range p.containers {
		c := r.containers[id]
		out = append(out, &runtimeapi.Container{
			Id: id, PodSandboxId: c.sandbox, Metadata: c.config.Metadata, State: c.status.State,
			CreatedAt: c.status.CreatedAt, Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	return out, nil
}

// ContainerStatus returns a container's status.
func (r *Runtime) ContainerStatus(ctx context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	if r.containers[id] == nil {
		return nil, status.Error(codes.NotFound, "no container")
	}
	return &runtimeapi.ContainerStatusResponse{Status: proto.CloneOf(r.containers[id].status)}, nil
}

// ReopenContainerLog does nothing.
func (r *Runtime) ReopenContainerLog(context.Context, string) error { return nil }

// ListImages returns none: there are none to report or remove.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return nil, nil
}

// ImageFsInfo returns no disk usage.
func (r *Runtime) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

// ListPodSandboxStats returns no usage.
func (r *Runtime) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return nil, nil
}

// ImageStatus reports every image as present.
func (r *Runtime) ImageStatus(ctx context.Context, _ *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	r.wait(ctx)
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "here"}}, nil
}

// Close does nothing.
func (r *Runtime) Close(context.Context) error { return nil }

// UpdateContainerResources changes a container's resources.
func (r *Runtime) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return status.Errorf(codes.NotFound, "container %s", id)
	}
	next := proto.CloneOf(c.status)
	next.Resources = proto.CloneOf(resources)
	c.status = next
	r.notify(r.sandboxes[c.sandbox])
	return nil
}
