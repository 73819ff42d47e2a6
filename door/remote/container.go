package remote

import (
	"context"
	"encoding/json"
	"math"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// stagedRoot is the path of a container's root in its staging namespace.
const stagedRoot = "/0"

// killSignal is the stop signal of a door's containers: the door itself sends all gentler ones.
const killSignal = 9

// CreateContainer implements enginev1.EngineService.
func (s *Service) CreateContainer(
	ctx context.Context, r *enginev1.CreateContainerRequest,
) (*enginev1.CreateContainerResponse, error) {
	ctx, done := s.keepServing(ctx)
	defer done()
	p, err := s.findPod(r)
	if err != nil {
		return nil, failure.Wrap(err, "create container %.80s", r.GetName())
	}
	req, err := containerRequest(r)
	if err != nil {
		return nil, failure.Wrap(err, "create container %.80s", r.GetName())
	}
	id, err := s.engine.CreateContainer(ctx, p.ID, req)
	if err != nil {
		return nil, err
	}
	return &enginev1.CreateContainerResponse{Container: id}, nil
}

// containerRequest translates a request for the engine.
func containerRequest(r *enginev1.CreateContainerRequest) (engine.ContainerRequest, error) {
	var out engine.ContainerRequest
	if r.GetKey() == "" || len(r.GetKey()) > maxKey || len(r.GetName()) > maxKey {
		return out, failure.Invalid("the key must have 1 to %d bytes, and the name at most that", maxKey)
	}
	if r.GetStagingFd() < 0 || r.GetHolder().GetPid() <= 0 {
		return out, failure.Invalid("the holder of the staging namespace is missing")
	}
	spec := &specs.Spec{}
	if err := json.Unmarshal(r.GetSpec(), spec); err != nil {
		return out, failure.Invalid("the specification: %v", err)
	}
	if spec.Process == nil {
		return out, failure.Invalid("the specification has no process")
	}
	holder, err := holderOf(r.GetHolder())
	if err != nil {
		return out, err
	}
	mounts, err := mountsOf(spec)
	if err != nil {
		return out, failure.Invalid("the specification: %v", err)
	}
	out = engine.ContainerRequest{
		Key: r.GetKey(), Name: r.GetName(), Spec: spec, Mounts: mounts, TTY: r.GetTerminal(), StopSignal: killSignal,
		Root:    containerv1.Share{Name: stagedRoot, SetID: r.GetSetId(), Present: true},
		Staging: store.Staging{Holder: holder, FD: int(r.GetStagingFd())},
		Stdio:   containerv1.Descriptors{Stdin: r.GetStdin()},
	}
	if len(r.GetRecord()) > 0 {
		out.Record, err = json.Marshal(r.GetRecord())
	}
	return out, err
}

// mountsOf removes the mounts from a specification and returns them.
func mountsOf(spec *specs.Spec) (mounts []containerv1.Mount, err error) {
	for _, m := range spec.Mounts {
		mount, err := containerv1.ParseMount(m.Destination, m.Type, m.Source, m.Options)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, mount)
	}
	spec.Mounts = nil
	return mounts, nil
}

// holderOf returns the identity of a process that holds descriptors.
func holderOf(h *enginev1.Holder) (procid.ID, error) {
	boot, err := procid.BootID()
	return procid.ID{PID: int(h.GetPid()), Start: h.GetStarted(), Boot: boot}, err
}

// UpdateContainer implements enginev1.EngineService.
func (s *Service) UpdateContainer(
	ctx context.Context, r *enginev1.UpdateContainerRequest,
) (*enginev1.UpdateContainerResponse, error) {
	ctx, done := s.keepServing(ctx)
	defer done()
	c, err := s.findContainer(r)
	if err != nil {
		return nil, failure.Wrap(err, "update container %.80s", r.GetContainer())
	}
	resources := &specs.LinuxResources{}
	if err := json.Unmarshal(r.GetResources(), resources); err != nil {
		return nil, failure.Invalid("update container %.80s: the resources: %v", r.GetContainer(), err)
	}
	if err := checkResources(resources); err != nil {
		return nil, failure.Wrap(err, "update container %.80s", r.GetContainer())
	}
	if err := s.engine.UpdateContainer(ctx, c.ID, resources, c.Record); err != nil {
		return nil, err
	}
	return &enginev1.UpdateContainerResponse{}, nil
}

// checkResources refuses numbers that could overflow sums.
func checkResources(r *specs.LinuxResources) error {
	if m := r.Memory; m != nil && m.Limit != nil && *m.Limit > maxNumber {
		return failure.Invalid("a memory limit of %d is more than %d", *m.Limit, int64(maxNumber))
	}
	if c := r.CPU; c != nil {
		if c.Quota != nil && *c.Quota > maxNumber || c.Period != nil && *c.Period > maxNumber || c.Shares != nil && *c.Shares > math.MaxInt32 {
			return failure.Invalid("a CPU limit is too large")
		}
	}
	return nil
}

// RemoveContainer implements enginev1.EngineService.
func (s *Service) RemoveContainer(
	ctx context.Context, r *enginev1.RemoveContainerRequest,
) (*enginev1.RemoveContainerResponse, error) {
	ctx, done := s.keepServing(ctx)
	defer done()
	c, err := s.findContainer(r)
	if err == nil {
		err = s.engine.RemoveContainer(ctx, c.ID)
	}
	if err != nil && !failure.NotFound(err) {
		return nil, failure.Wrap(err, "remove container %.80s", r.GetContainer())
	}
	return &enginev1.RemoveContainerResponse{}, nil
}

// findPod returns the door's pod that a request names.
func (s *Service) findPod(r podReference) (*engine.Pod, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	return s.find(r.GetDoor(), func(p *engine.Pod) bool { return p.ID == r.GetId() })
}

// containerReference is a request about an existing container.
type containerReference interface {
	podReference
	GetContainer() string
}

// findContainer returns the container that a request names, if it belongs to the door's pod.
func (s *Service) findContainer(r containerReference) (*engine.Container, error) {
	p, err := s.findPod(r)
	if err != nil {
		return nil, err
	}
	c, err := s.engine.Container(r.GetContainer())
	if err == nil && (c.PodID != p.ID || c.ID != r.GetContainer()) {
		err = failure.New(errdefs.ErrNotFound, "container not found")
	}
	return &c, err
}
