package nri

import (
	"context"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// resubscribePause is the pause before a new subscription to events after one has ended.
const resubscribePause = time.Second

// watchEvents notifies the plugins of ends and removals, whatever their cause, until ctx ends. It calls subscribed when no
// event can be missed any more. If the subscription ends, it subscribes again and reports the missed events.
func (p *Plugins) watchEvents(ctx context.Context, subscribed func()) {
	defer subscribed()
	for first := true; ctx.Err() == nil; first = false {
		ch := make(chan *runtimeapi.ContainerEventResponse)
		done := make(chan error, 1)
		go func() {
			done <- p.run.GetContainerEvents(ctx, ch, func(runtimeapi.RuntimeService_GetContainerEventsClient) {
				subscribed()
				if first {
					return
				}
				if err := p.missed(ctx); err != nil && ctx.Err() == nil {
					p.o.Logger.Warn("cannot look for events that plugins have missed", "error", err)
				}
			})
		}()
		for open := true; open; {
			select {
			case e := <-ch:
				p.notify(ctx, e)
			case err := <-done:
				open = false
				if ctx.Err() == nil {
					p.o.Logger.Warn("the subscription to events for plugins ended", "error", err)
				}
			}
		}
		select {
		case <-time.After(resubscribePause):
		case <-ctx.Done():
		}
	}
}

func (p *Plugins) notify(ctx context.Context, e *runtimeapi.ContainerEventResponse) {
	id := e.GetContainerId()
	stopped := e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted := e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	if id == e.GetPodSandboxStatus().GetId() {
		p.mu.Lock()
		pod := p.pods[id]
		if deleted {
			delete(p.pods, id)
			delete(p.stopped, id)
		}
		p.mu.Unlock()
		switch {
		case pod == nil:
		case stopped && p.markEnded(id):
			p.log("stop", id, p.a.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pod}))
		case deleted:
			p.log("remove", id, p.a.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pod}))
		}
		return
	}
	for _, st := range e.GetContainersStatuses() {
		if st.GetId() == id {
			p.set(id, func(c *api.Container) { state(c, st) })
		}
	}
	c, pod := p.container(id)
	switch {
	case c == nil:
	case stopped && p.markEnded(id):
		res, err := p.a.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: c})
		p.log("stop", id, err)
		if _, err := p.unsolicited(ctx, res.GetUpdate()); err != nil {
			p.log("stop", id, err)
		}
	case deleted:
		p.drop(id)
		p.log("remove", id, p.a.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pod, Container: c}))
	}
}

// read loads the existing pods and containers before the first plugin connects.
func (p *Plugins) read(ctx context.Context) error {
	pods, err := p.run.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		p.pod(ctx, pod.GetId())
		if pod.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			p.markEnded(pod.GetId())
		}
	}
	all, err := p.run.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	for _, c := range all {
		res, err := p.run.ContainerStatus(ctx, c.GetId(), false)
		if err != nil {
			continue // removed meanwhile
		}
		known := &api.Container{
			Id: c.GetId(), PodSandboxId: c.GetPodSandboxId(), Name: c.GetMetadata().GetName(),
			Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
			Linux: &api.LinuxContainer{Resources: ofCRI(res.GetStatus().GetResources().GetLinux())},
			Image: &api.Image{Name: c.GetImage().GetImage()},
		}
		state(known, res.GetStatus())
		p.mu.Lock()
		p.containers[c.GetId()] = known
		p.mu.Unlock()
		p.markCreated(c.GetId())
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			p.markEnded(c.GetId())
		}
	}
	return nil
}

// pod returns a pod in the plugins' form, and whether it was known before. It returns nil for a pod that is gone.
func (p *Plugins) pod(ctx context.Context, id string) (pod *api.PodSandbox, known bool) {
	p.mu.Lock()
	pod, known = p.pods[id]
	p.mu.Unlock()
	if known {
		return pod, true
	}
	res, err := p.run.PodSandboxStatus(ctx, id, false)
	if err != nil {
		return nil, false
	}
	st := res.GetStatus()
	pod = &api.PodSandbox{
		Id: st.GetId(), Name: st.GetMetadata().GetName(), Uid: st.GetMetadata().GetUid(), Namespace: st.GetMetadata().GetNamespace(),
		Labels: st.GetLabels(), Annotations: st.GetAnnotations(), RuntimeHandler: st.GetRuntimeHandler(), Linux: &api.LinuxPodSandbox{},
	}
	for _, ip := range append([]string{st.GetNetwork().GetIp()}, additionalIPs(st.GetNetwork())...) {
		if ip != "" {
			pod.Ips = append(pod.Ips, ip)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.pods[id]; now != nil {
		return now, true
	}
	p.pods[id] = pod
	return pod, false
}

func additionalIPs(n *runtimeapi.PodSandboxNetworkStatus) (out []string) {
	for _, ip := range n.GetAdditionalIps() {
		out = append(out, ip.GetIp())
	}
	return out
}

// container returns the container with that ID or ID prefix, and its pod. It returns nil for an unknown container.
func (p *Plugins) container(id string) (*api.Container, *api.PodSandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.containers[id]
	for full := range p.containers {
		if c == nil && id != "" && strings.HasPrefix(full, id) {
			c = p.containers[full]
		}
	}
	return c, p.pods[c.GetPodSandboxId()]
}

// set changes a container's entry. It replaces the entry, because callers may hold the old one.
func (p *Plugins) set(id string, change func(*api.Container)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.containers[id]; c != nil {
		c = proto.CloneOf(c)
		change(c)
		p.containers[id] = c
	}
}

func (p *Plugins) drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.containers, id)
	delete(p.created, id)
	delete(p.stopped, id)
}
