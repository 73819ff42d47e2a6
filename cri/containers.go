package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/cri/cdi"
	"github.com/bulkhead-project/bulkhead/cri/spec"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/oci"
)

// CreateContainer makes a container in a ready pod and returns its id. A request
// for a name and attempt that is being created, or is created and not started,
// gets that container's id. The end of ctx ends the wait only.
func (s *Service) CreateContainer(
	ctx context.Context, podID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	return s.CreateContainerWith(ctx, podID, config, sandbox, runtimev1.ContainerOptions{})
}

// CreateContainerWith implements runtimev1.Runtime.
func (s *Service) CreateContainerWith(
	ctx context.Context, podID string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig, o runtimev1.ContainerOptions,
) (string, error) {
	p, err := s.find(podID)
	if err != nil {
		return "", err
	}
	meta := config.GetMetadata()
	switch {
	case meta.GetName() == "":
		return "", failure.Invalid("the container has no name (metadata.name)")
	case config.GetImage().GetImage() == "":
		return "", failure.Invalid("container %s: no image", meta.GetName())
	case config.GetLogPath() != "" && !filepath.IsLocal(config.GetLogPath()):
		return "", failure.Invalid("container %s: log path %q leaves the pod's log directory", meta.GetName(), config.GetLogPath())
	}
	req, err := s.containerRequest(ctx, &p, proto.CloneOf(config), o)
	if err != nil {
		return "", failure.Wrap(err, "create container %s", meta.GetName())
	}
	return s.engine.CreateContainer(ctx, p.ID, req)
}

// containerRequest is what the engine is asked for. The configuration is its own.
func (s *Service) containerRequest(
	ctx context.Context, p *engine.Pod, config *runtimeapi.ContainerConfig, o runtimev1.ContainerOptions,
) (r engine.ContainerRequest, err error) {
	pod := s.podOf(p)
	img, err := s.engine.Images().Resolve(config.GetImage().GetImage())
	if err != nil {
		return r, err
	}
	if err := s.resolveImages(config); err != nil {
		return r, err
	}
	if err := cdi.Apply(config, s.cdi); err != nil {
		return r, err
	}
	own, err := s.takeOwnFiles(config)
	if err != nil {
		return r, err
	}
	r = engine.ContainerRequest{
		Key:  fmt.Sprintf("%s/%d", config.GetMetadata().GetName(), config.GetMetadata().GetAttempt()),
		Name: config.GetMetadata().GetName(), TTY: config.GetTty(), StopSignal: stopSignal(config, img),
		Root: containerv1.Image{ID: img.ID}, Termination: own.termination,
		Stdio: stdioOf(config, pod.config),
	}
	if r.Files, err = s.filesOf(config, pod.options.FSGroup); err != nil {
		return r, err
	}
	in := spec.Input{
		Container: config, Sandbox: pod.config, Options: pod.options, Own: o, Volumes: s.volumes, Image: img.Config, Hosts: own.hosts,
	}
	if own.termination != nil {
		in.Termination = own.termination.Container
	}
	if r.Spec, err = s.specify(ctx, p, in); err != nil {
		return r, err
	}
	if _, ok := r.Stdio.(containerv1.Discard); ok {
		s.log.Info("a container's output is discarded: its pod has no log directory, or it has no log path",
			"pod", p.ID, "name", config.GetMetadata().GetName())
	}
	r.Adjust = s.adjusted(p.ID, config, r.Spec)
	keep := kept(config, own)
	keep.Image.Image = imageName(config.GetImage(), img)
	r.Record, err = encode(keep, stored{ImageRef: imageRef(img)})
	return r, err
}

// Making is a container that is being made. Its configuration must not be changed.
type Making struct {
	ID, PodID string
	Config    *runtimeapi.ContainerConfig
}

// adjusted has Options.Adjust change a copy of a specification, nil without one.
func (s *Service) adjusted(
	pod string, config *runtimeapi.ContainerConfig, spec *specs.Spec,
) func(context.Context, string) (*specs.Spec, func(), error) {
	if s.adjust == nil {
		return nil
	}
	return func(ctx context.Context, id string) (*specs.Spec, func(), error) {
		var own specs.Spec
		raw, err := json.Marshal(spec)
		if err == nil {
			err = json.Unmarshal(raw, &own)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("copy the specification: %w", err)
		}
		undo, err := s.adjust(ctx, Making{ID: id, PodID: pod, Config: config}, &own)
		return &own, undo, err
	}
}

// kept is the configuration that is stored: without the environment and the command,
// which may hold secrets.
func kept(config *runtimeapi.ContainerConfig, own ownFiles) *runtimeapi.ContainerConfig {
	config = proto.CloneOf(config)
	config.Envs, config.Command, config.Args = nil, nil, nil
	config.Mounts = append(config.Mounts, own.mounts...)
	return config
}

// resolveImages has the mounts of images name them by their ids.
func (s *Service) resolveImages(config *runtimeapi.ContainerConfig) error {
	for _, mount := range config.GetMounts() {
		name := mount.GetImage().GetImage()
		if name == "" {
			continue
		}
		img, err := s.engine.Images().Resolve(name)
		if err != nil {
			return fmt.Errorf("volume at %s: %w", mount.GetContainerPath(), err)
		}
		mount.Image.Image = img.ID
	}
	return nil
}

// filesOf are the volumes of files that a container mounts.
func (s *Service) filesOf(config *runtimeapi.ContainerConfig, group int) ([]store.Files, error) {
	var out []store.Files
	for _, mount := range config.GetMounts() {
		v, ok, err := s.volumes.Of(mount.GetHostPath())
		if err != nil {
			return nil, fmt.Errorf("%w: mount at %s: %w", oci.ErrInvalid, mount.GetContainerPath(), err)
		}
		f := store.Files{Name: v.Name, Dir: v.Dir, Group: group}
		if ok && v.Files && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out, nil
}

// stdioOf is where a container's standard streams lead.
func stdioOf(config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) containerv1.Stdio {
	in := containerv1.NoStdin
	switch {
	case config.GetStdin() && config.GetStdinOnce():
		in = containerv1.StdinOnce
	case config.GetStdin():
		in = containerv1.OpenStdin
	}
	if sandbox.GetLogDirectory() == "" || config.GetLogPath() == "" {
		return containerv1.Discard{Stdin: in}
	}
	return containerv1.Log{File: filepath.Join(sandbox.GetLogDirectory(), config.GetLogPath()), Stdin: in}
}

// imageName is what a container's status calls its image: a name of the image's, where the
// client gives the id that it has pulled.
func imageName(spec *runtimeapi.ImageSpec, img image.Image) string {
	user := spec.GetUserSpecifiedImage()
	switch {
	case spec.GetImage() != img.ID:
		return spec.GetImage()
	case slices.Contains(img.Names, user):
		return user
	case len(img.Names) > 0:
		return img.Names[0]
	}
	return imageRef(img)
}

func imageRef(img image.Image) string {
	if len(img.Digests) > 0 {
		return img.Digests[0]
	}
	return img.ID
}

// StartContainer starts a created container. A container whose command cannot be run
// has ended then, with code 126 or 127, and the error says why.
func (s *Service) StartContainer(ctx context.Context, id string) error {
	return s.engine.StartContainer(ctx, id)
}

// StopContainer asks a container to end with its stop signal, and after timeout
// seconds kills it; with 0 it kills at once. It returns when the container has
// ended, and succeeds for one that has already or is not there.
func (s *Service) StopContainer(ctx context.Context, id string, timeout int64) error {
	return s.engine.StopContainer(ctx, id, time.Duration(max(timeout, 0))*time.Second)
}

// RemoveContainer removes a container, killing it first. It succeeds for one that is
// not there. The container's log stays.
func (s *Service) RemoveContainer(ctx context.Context, id string) error {
	c, err := s.engine.Container(id)
	if failure.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.engine.RemoveContainer(ctx, c.ID); err != nil {
		return err
	}
	s.containers.forget(c.ID)
	return nil
}

// ReopenContainerLog lets a running container's log go on in a new file at its path,
// after the old one was moved away.
func (s *Service) ReopenContainerLog(ctx context.Context, id string) error {
	return s.engine.ReopenLog(ctx, id)
}

// UpdateContainerResources changes the limits of a running container.
func (s *Service) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error {
	c, err := s.engine.Container(id)
	if err != nil {
		return err
	}
	rec := s.containerOf(&c)
	next := proto.CloneOf(rec.config)
	if next.Linux == nil {
		next.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	next.Linux.Resources = merge(next.Linux.Resources, resources.GetLinux())
	raw, err := encode(next, stored{ImageRef: rec.imageRef})
	if err != nil {
		return failure.Wrap(err, "update container %s", c.Name)
	}
	return s.engine.UpdateContainer(ctx, c.ID, linuxResources(resources.GetLinux(), next.Linux.Resources), raw)
}

// merge is what a container has after an update, which leaves what is 0 unchanged.
func merge(old, update *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	if old == nil {
		return proto.CloneOf(update)
	}
	next := proto.CloneOf(old)
	if len(update.GetHugepageLimits()) > 0 {
		next.HugepageLimits = nil
	}
	proto.Merge(next, update)
	return next
}

// linuxResources is an update of what a container then has. It leaves out what is 0: no change.
func linuxResources(r, next *runtimeapi.LinuxContainerResources) *specs.LinuxResources {
	out := &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: r.GetCpusetCpus(), Mems: r.GetCpusetMems()}}
	if q := r.GetCpuQuota(); q != 0 {
		out.CPU.Quota = &q
	}
	if p := uint64(max(r.GetCpuPeriod(), 0)); p != 0 {
		out.CPU.Period = &p
	}
	if sh := uint64(max(r.GetCpuShares(), 0)); sh != 0 {
		out.CPU.Shares = &sh
	}
	if limit := r.GetMemoryLimitInBytes(); limit != 0 {
		out.Memory = &specs.LinuxMemory{Limit: &limit}
	}
	out.Unified = maps.Clone(r.GetUnified())
	if _, said := next.GetUnified()[spec.OOMGroup]; !said && out.Memory != nil {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		out.Unified[spec.OOMGroup] = "1"
	}
	return out
}
