package cri

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/cri/store"
)

func (p *pod) state() runtimeapi.PodSandboxState {
	if p.record.Phase == store.Ready && p.record.Exit == "" {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// status is the pod's; all of it is the caller's own.
func (p *pod) status() *runtimeapi.PodSandboxStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := &runtimeapi.PodSandboxStatus{
		Id: p.id, Metadata: proto.CloneOf(p.config.GetMetadata()), State: p.state(),
		CreatedAt: p.record.Created.UnixNano(), Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: proto.CloneOf(p.config.GetLinux().GetSecurityContext().GetNamespaceOptions()),
		}},
		Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(), RuntimeHandler: p.record.Handler,
	}
	if status.State == runtimeapi.PodSandboxState_SANDBOX_READY && len(p.record.IPs) > 0 {
		status.Network.Ip = p.record.IPs[0]
		for _, ip := range p.record.IPs[1:] {
			status.Network.AdditionalIps = append(status.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	return proto.CloneOf(status)
}

// statuses are those of the pod's containers, oldest first.
func (p *pod) statuses() []*runtimeapi.ContainerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*runtimeapi.ContainerStatus, 0, len(p.containers))
	for _, c := range p.containers {
		out = append(out, c.status())
	}
	slices.SortFunc(out, func(a, b *runtimeapi.ContainerStatus) int { return int(a.CreatedAt - b.CreatedAt) })
	return out
}

func (c *container) state() runtimeapi.ContainerState {
	switch {
	case c.Exit != nil:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case !c.Started.IsZero():
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return runtimeapi.ContainerState_CONTAINER_CREATED
}

// status is called with the pod's mu held.
func (c *container) status() *runtimeapi.ContainerStatus {
	s := &runtimeapi.ContainerStatus{
		Id: c.ID, Metadata: c.config.GetMetadata(), State: c.state(),
		CreatedAt: c.Created.UnixNano(), StartedAt: nanos(c.Started),
		Image: c.config.GetImage(), ImageRef: c.ImageRef, ImageId: c.ImageID,
		Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(), Mounts: c.config.GetMounts(),
		LogPath: c.log, StopSignal: criSignal(c.config, c.StopSignal),
	}
	if r := c.config.GetLinux().GetResources(); r != nil {
		s.Resources = &runtimeapi.ContainerResources{Linux: r}
	}
	if e := c.Exit; e != nil {
		s.ExitCode, s.Reason, s.Message = int32(e.Code), e.Reason, printable(e.Message)
		s.FinishedAt = nanos(e.At)
	}
	return proto.CloneOf(s)
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// PodSandboxStatus returns a pod's status; with verbose, its info holds under
// "facts" the JSON of Facts.
func (s *Service) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	p, err := s.find(id)
	if err != nil {
		return nil, err
	}
	res := &runtimeapi.PodSandboxStatusResponse{Status: p.status(), ContainersStatuses: p.statuses(), Timestamp: time.Now().UnixNano()}
	if verbose {
		raw, err := json.Marshal(p.facts(ctx))
		if err != nil {
			return nil, fail(err, "pod %s", short(p.id))
		}
		res.Info = map[string]string{"facts": string(raw)}
	}
	return res, nil
}

// ContainerStatus returns a container's status; with verbose, its info holds
// the pod's id under "sandboxID".
func (s *Service) ContainerStatus(_ context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := s.findContainer(id)
	if err != nil {
		return nil, err
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	res := &runtimeapi.ContainerStatusResponse{Status: c.status()}
	if verbose {
		res.Info = map[string]string{"sandboxID": c.pod.id}
	}
	return res, nil
}

// ListPodSandbox returns the pods that match filter, which may be nil, newest
// first.
func (s *Service) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	var out []*runtimeapi.PodSandbox
	for _, p := range s.all() {
		st := p.status()
		switch {
		case !strings.HasPrefix(p.id, filter.GetId()),
			filter.GetState() != nil && filter.GetState().GetState() != st.State,
			!matches(filter.GetLabelSelector(), st.Labels):
			continue
		}
		out = append(out, &runtimeapi.PodSandbox{
			Id: st.Id, Metadata: st.Metadata, State: st.State, CreatedAt: st.CreatedAt,
			Labels: st.Labels, Annotations: st.Annotations, RuntimeHandler: st.RuntimeHandler,
		})
	}
	slices.SortFunc(out, func(a, b *runtimeapi.PodSandbox) int { return int(b.CreatedAt - a.CreatedAt) })
	return out, nil
}

// ListContainers returns the containers that match filter, which may be nil,
// newest first.
func (s *Service) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var out []*runtimeapi.Container
	for _, p := range s.all() {
		if !strings.HasPrefix(p.id, filter.GetPodSandboxId()) {
			continue
		}
		for _, st := range p.statuses() {
			switch {
			case !strings.HasPrefix(st.Id, filter.GetId()),
				filter.GetState() != nil && filter.GetState().GetState() != st.State,
				!matches(filter.GetLabelSelector(), st.Labels):
				continue
			}
			out = append(out, &runtimeapi.Container{
				Id: st.Id, PodSandboxId: p.id, Metadata: st.Metadata, Image: st.Image, ImageRef: st.ImageRef,
				ImageId: st.ImageId, State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
			})
		}
	}
	slices.SortFunc(out, func(a, b *runtimeapi.Container) int { return int(b.CreatedAt - a.CreatedAt) })
	return out, nil
}

func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}
