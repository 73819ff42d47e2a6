package nri

import (
	"context"
	"maps"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// missed notifies the plugins of ends that happened between two subscriptions. Events for the same ends may arrive too,
// but each end is reported once.
func (p *Plugins) missed(ctx context.Context) error {
	// Later pods and containers need no check, and entries that disappear were reported.
	p.mu.Lock()
	pods, containers := slices.Collect(maps.Keys(p.pods)), slices.Collect(maps.Keys(p.created))
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
		p.notifyEnd(ctx, e, at < 0)
	}
	for _, id := range pods {
		at := slices.IndexFunc(all, func(pod *runtimeapi.PodSandbox) bool { return pod.GetId() == id })
		if at >= 0 && all[at].GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		p.notifyEnd(ctx, &runtimeapi.ContainerEventResponse{
			ContainerId: id, PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: id},
		}, at < 0)
	}
	return nil
}

// notifyEnd reports the end of the event's pod or container, and also its removal if gone is set.
func (p *Plugins) notifyEnd(ctx context.Context, e *runtimeapi.ContainerEventResponse, gone bool) {
	e.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	p.notify(ctx, e)
	if gone {
		e.ContainerEventType = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
		p.notify(ctx, e)
	}
}

// markEnded records the end of a pod or container, and returns true if it was not recorded before.
func (p *Plugins) markEnded(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.stopped[id]
	p.stopped[id] = true
	return !before
}

// markCreated records that the runtime has a container. If the runtime no longer lists it, it was removed.
func (p *Plugins) markCreated(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.containers[id] != nil {
		p.created[id] = true
	}
}
