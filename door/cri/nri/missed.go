package nri

import (
	"context"
	"maps"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// missed tells the plugins of what has ended while nobody followed the events. Events of what ends
// meanwhile may come too: each end is told once.
func (p *Plugins) missed(ctx context.Context) error {
	// What is made after this is of no concern, and what is gone from it has been told.
	p.mu.Lock()
	pods, containers := slices.Collect(maps.Keys(p.pods)), slices.Collect(maps.Keys(p.made))
	p.mu.Unlock()
	left, err := p.run.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	all, err := p.run.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	for _, id := range containers {
		at := slices.IndexFunc(left, func(c *runtimeapi.Container) bool { return c.GetId() == id })
		if at >= 0 && left[at].GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		c, _ := p.container(id)
		e := &runtimeapi.ContainerEventResponse{
			ContainerId: id, PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: c.GetPodSandboxId()},
			ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: id, State: runtimeapi.ContainerState_CONTAINER_EXITED}},
		}
		if res, err := p.run.ContainerStatus(ctx, id, false); err == nil {
			e.ContainersStatuses[0] = res.GetStatus()
		}
		p.tellEnd(ctx, e, at < 0)
	}
	for _, id := range pods {
		at := slices.IndexFunc(all, func(pod *runtimeapi.PodSandbox) bool { return pod.GetId() == id })
		if at >= 0 && all[at].GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		p.tellEnd(ctx, &runtimeapi.ContainerEventResponse{
			ContainerId: id, PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: id},
		}, at < 0)
	}
	return nil
}

// tellEnd tells of the end, and of the removal if it is gone, of what an event is about.
func (p *Plugins) tellEnd(ctx context.Context, e *runtimeapi.ContainerEventResponse, gone bool) {
	e.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	p.tell(ctx, e)
	if gone {
		e.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
		p.tell(ctx, e)
	}
}

// ended notes the end of a pod or a container, and returns whether it is the first that is told.
func (p *Plugins) ended(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.stopped[id]
	p.stopped[id] = true
	return !before
}

// known notes that the runtime has a container: when it is not listed any more, it is gone.
func (p *Plugins) known(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.containers[id] != nil {
		p.made[id] = true
	}
}
