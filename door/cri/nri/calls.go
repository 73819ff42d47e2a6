package nri

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	service "github.com/bulkhead-project/bulkhead/cri"
)

// undoTimeout bounds the removal of a pod that a plugin has refused.
const undoTimeout = 3 * time.Minute

// RunPodSandbox runs a pod and notifies the plugins when it is up. If a plugin refuses the pod, it is removed.
func (p *Plugins) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	defer p.a.BlockPluginSync().Unblock()
	id, err := p.run.RunPodSandbox(ctx, config, handler)
	if err != nil {
		return id, err
	}
	pod, known := p.pod(ctx, id)
	if known || pod == nil {
		return id, nil
	}
	err = p.a.RunPodSandbox(context.WithoutCancel(ctx), &api.RunPodSandboxRequest{Pod: pod})
	if err == nil {
		return id, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := p.run.RemovePodSandbox(ctx, id); err != nil {
		p.o.Logger.Warn("cannot remove a pod that a plugin refused", "pod", id, "error", err)
	}
	return "", fmt.Errorf("pod %s: refused by a plugin: %w", config.GetMetadata().GetName(), err)
}

// CreateContainer creates a container that the plugins adjust (see Adjust).
func (p *Plugins) CreateContainer(
	ctx context.Context, pod string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	defer p.a.BlockPluginSync().Unblock()
	id, err := p.run.CreateContainer(ctx, pod, config, sandbox)
	if err != nil {
		return id, err
	}
	c, of := p.container(id)
	if c == nil {
		return id, nil
	}
	p.markCreated(id)
	p.log("post-create", id,
		p.a.PostCreateContainer(context.WithoutCancel(ctx), &api.PostCreateContainerRequest{Pod: of, Container: c}))
	return id, nil
}

// Adjust lets the plugins adjust the specification of a new container.
func (p *Plugins) Adjust(ctx context.Context, m service.Making, spec *specs.Spec) (undo func(), err error) {
	pod, _ := p.pod(ctx, m.PodID)
	c := containerOf(m, spec)
	res, err := p.a.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod, Container: c})
	undo = func() {
		p.drop(c.GetId())
		p.log("remove", c.GetId(),
			p.a.RemoveContainer(context.WithoutCancel(ctx), &api.RemoveContainerRequest{Pod: pod, Container: c}))
	}
	if err == nil {
		err = adjust(spec, res.GetAdjust(), c.GetEnv())
	}
	if err != nil {
		undo()
		return nil, fmt.Errorf("apply the adjustments of the node's plugins: %w", err)
	}
	// The updates may be for any other container. This one does not exist yet.
	if _, err := p.unsolicited(ctx, res.GetUpdate()); err != nil {
		undo()
		return nil, err
	}
	p.evict(ctx, res.GetEvict())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.containers[c.GetId()] = containerOf(m, spec)
	return undo, nil
}

// StartContainer starts a container unless a plugin refuses it.
func (p *Plugins) StartContainer(ctx context.Context, id string) error {
	c, pod := p.container(id)
	if c == nil {
		return p.run.StartContainer(ctx, id)
	}
	if err := p.a.StartContainer(ctx, &api.StartContainerRequest{Pod: pod, Container: c}); err != nil {
		return fmt.Errorf("start container %s: refused by a plugin: %w", c.GetName(), err)
	}
	if err := p.run.StartContainer(ctx, id); err != nil {
		return err
	}
	p.set(id, func(c *api.Container) {
		c.State, c.StartedAt = api.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	})
	c, pod = p.container(id)
	p.log("post-start", id,
		p.a.PostStartContainer(context.WithoutCancel(ctx), &api.PostStartContainerRequest{Pod: pod, Container: c}))
	return nil
}

// UpdateContainerResources changes a container's limits after the plugins have adjusted them.
func (p *Plugins) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error {
	c, pod := p.container(id)
	if c == nil {
		return p.run.UpdateContainerResources(ctx, id, r)
	}
	res, err := p.a.UpdateContainer(ctx, &api.UpdateContainerRequest{Pod: pod, Container: c, LinuxResources: ofCRI(r.GetLinux())})
	if err != nil {
		return fmt.Errorf("update container %s: %w", c.GetName(), err)
	}
	var others []*api.ContainerUpdate
	for _, u := range res.GetUpdate() {
		if u == nil { // for a container without changes
			continue
		}
		if u.GetContainerId() != c.GetId() {
			others = append(others, u)
			continue
		}
		own, err := resources(u.GetLinux().GetResources(), r.GetLinux())
		if err != nil {
			return fmt.Errorf("update container %s: %w", c.GetName(), err)
		}
		r = &runtimeapi.ContainerResources{Linux: own}
	}
	if _, err := p.unsolicited(ctx, others); err != nil {
		return err
	}
	p.evict(ctx, res.GetEvict())
	if err := p.run.UpdateContainerResources(ctx, id, r); err != nil {
		return err
	}
	p.log("post-update", id,
		p.a.PostUpdateContainer(context.WithoutCancel(ctx), &api.PostUpdateContainerRequest{Pod: pod, Container: c}))
	return nil
}

// log logs a plugin's failure that no caller waits for.
func (p *Plugins) log(what, id string, err error) {
	if err != nil {
		p.o.Logger.Warn("a plugin failed", "event", what, "id", id, "error", err)
	}
}
