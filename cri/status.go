package cri

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
)

func podState(p *engine.Pod) runtimeapi.PodSandboxState {
	if p.Ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// podStatus returns a pod's status, which the caller owns.
func (r *records) podStatus(p *engine.Pod) *runtimeapi.PodSandboxStatus {
	rec := r.podOf(p)
	config := proto.CloneOf(rec.config)
	status := &runtimeapi.PodSandboxStatus{
		Id: p.ID, Metadata: config.GetMetadata(), State: podState(p),
		CreatedAt: p.Created.UnixNano(), Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), RuntimeHandler: rec.handler,
	}
	if p.Ready && len(p.IPs) > 0 {
		status.Network.Ip = p.IPs[0]
		for _, ip := range p.IPs[1:] {
			status.Network.AdditionalIps = append(status.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	return status
}

// statuses returns the statuses of a pod's containers, oldest first.
func (r *records) statuses(p *engine.Pod) []*runtimeapi.ContainerStatus {
	out := make([]*runtimeapi.ContainerStatus, 0, len(p.Containers))
	for i := range p.Containers {
		out = append(out, r.containerStatus(&p.Containers[i]))
	}
	return out
}

var containerState = map[engine.State]runtimeapi.ContainerState{
	engine.ContainerCreated: runtimeapi.ContainerState_CONTAINER_CREATED,
	engine.ContainerRunning: runtimeapi.ContainerState_CONTAINER_RUNNING,
	engine.ContainerExited:  runtimeapi.ContainerState_CONTAINER_EXITED,
}

// containerStatus returns a container's status, which the caller owns.
func (r *records) containerStatus(c *engine.Container) *runtimeapi.ContainerStatus {
	rec := r.containerOf(c)
	config := proto.CloneOf(rec.config)
	st := &runtimeapi.ContainerStatus{
		Id: c.ID, Metadata: config.GetMetadata(), State: containerState[c.State],
		CreatedAt: c.Created.UnixNano(), StartedAt: nanos(c.Started),
		Image: config.GetImage(), ImageRef: rec.imageRef, ImageId: c.ImageID,
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), Mounts: config.GetMounts(),
		LogPath: c.Log, StopSignal: criSignal(config, c.StopSignal),
	}
	if u := c.User; u != nil {
		st.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: int64(u.UID), Gid: int64(u.GID)}}
		for _, g := range u.Groups {
			st.User.Linux.SupplementalGroups = append(st.User.Linux.SupplementalGroups, int64(g))
		}
	}
	if r := config.GetLinux().GetResources(); r != nil {
		st.Resources = &runtimeapi.ContainerResources{Linux: r}
	}
	if x := c.Exit; x != nil {
		st.ExitCode, st.Reason, st.Message, st.FinishedAt = int32(x.Code), x.Reason, x.Message, nanos(x.At)
		if x.Reason == engine.ReasonCannotRun {
			st.ExitCode, st.Reason, st.Message = runtimev1.CodeStart, runtimev1.ReasonStart, runtimev1.StartMessage(x.Message, x.Code)
		}
	}
	return st
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// PodSandboxStatus returns a pod's status. With verbose, info contains the JSON of Facts under "facts".
func (s *Service) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	p, err := s.find(id)
	if err != nil {
		return nil, err
	}
	res := &runtimeapi.PodSandboxStatusResponse{
		Status: s.records.podStatus(&p), ContainersStatuses: s.records.statuses(&p), Timestamp: time.Now().UnixNano(),
	}
	if verbose {
		facts, err := s.engine.Facts(ctx, p.ID)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(facts)
		if err != nil {
			return nil, failure.Wrap(err, "pod %.12s", p.ID)
		}
		res.Info = map[string]string{"facts": string(raw)}
	}
	return res, nil
}

// ContainerStatus returns a container's status. With verbose, info contains the pod's id under "sandboxID".
func (s *Service) ContainerStatus(_ context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := s.engine.Container(id)
	if err != nil {
		return nil, err
	}
	res := &runtimeapi.ContainerStatusResponse{Status: s.records.containerStatus(&c)}
	if verbose {
		res.Info = map[string]string{"sandboxID": c.PodID}
	}
	return res, nil
}

// ListPodSandbox returns the pods that match filter, which may be nil, newest first.
func (s *Service) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	var out []*runtimeapi.PodSandbox
	for _, p := range s.all() {
		st := s.records.podStatus(&p)
		switch {
		case !strings.HasPrefix(p.ID, filter.GetId()),
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

// ListContainers returns the containers that match filter, which may be nil, newest first.
func (s *Service) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var out []*runtimeapi.Container
	for _, p := range s.all() {
		if !strings.HasPrefix(p.ID, filter.GetPodSandboxId()) {
			continue
		}
		for _, st := range s.records.statuses(&p) {
			switch {
			case !strings.HasPrefix(st.Id, filter.GetId()),
				filter.GetState() != nil && filter.GetState().GetState() != st.State,
				!matches(filter.GetLabelSelector(), st.Labels):
				continue
			}
			out = append(out, &runtimeapi.Container{
				Id: st.Id, PodSandboxId: p.ID, Metadata: st.Metadata, Image: st.Image, ImageRef: st.ImageRef,
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
