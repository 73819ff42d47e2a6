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

// CreateContainer creates a container in a ready pod and returns its id. If a container with that name and attempt is
// being created, or is created and not started, it returns that container's id. The end of ctx ends only the wait.
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

// containerRequest returns the request to the engine. It may change config.
func (s *Service) containerRequest(
	ctx context.Context, p *engine.Pod, config *runtimeapi.ContainerConfig, o runtimev1.ContainerOptions,
) (r engine.ContainerRequest, err error) {
	pod := s.records.podOf(p)
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
	if r.Spec, r.Mounts, err = s.specify(ctx, p, in); err != nil {
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

// Making is a container that is being created. Its configuration must not be changed.
type Making struct {
	ID, PodID string
	Config    *runtimeapi.ContainerConfig
}

// adjusted returns a function that lets Options.Adjust change a copy of spec, nil without Adjust.
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

// kept returns the configuration for the record, without the environment and the command, which may contain secrets.
func kept(config *runtimeapi.ContainerConfig, own ownFiles) *runtimeapi.ContainerConfig {
	config = proto.CloneOf(config)
	config.Envs, config.Command, config.Args = nil, nil, nil
	config.Mounts = append(config.Mounts, own.mounts...)
	return config
}

// resolveImages replaces the images of mounts with their ids.
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

// filesOf returns the volumes of files that a container mounts.
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

// stdioOf returns the ends of a container's standard streams.
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

// imageName returns the name of the image for a container's status. It is one of the image's names if the client gives
// the id that it has pulled.
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

// StartContainer starts a created container. If its command cannot be run, the container has ended with code 126 or
// 127, and the error contains the reason.
func (s *Service) StartContainer(ctx context.Context, id string) error {
	return s.engine.StartContainer(ctx, id)
}

// StopContainer sends a container its stop signal, and kills it after timeout seconds; with 0 it kills immediately. It
// returns when the container has ended. It succeeds for a container that has ended or does not exist.
func (s *Service) StopContainer(ctx context.Context, id string, timeout int64) error {
	return s.engine.StopContainer(ctx, id, time.Duration(max(timeout, 0))*time.Second)
}

// RemoveContainer removes a container, which it kills first. It succeeds if the container does not exist. The log
// stays.
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
	s.records.containers.forget(c.ID)
	return nil
}

// ReopenContainerLog makes a running container's log continue in a new file at its path, after the old one was renamed.
func (s *Service) ReopenContainerLog(ctx context.Context, id string) error {
	return s.engine.ReopenLog(ctx, id)
}

// UpdateContainerResources changes the limits of a running container.
func (s *Service) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error {
	c, err := s.engine.Container(id)
	if err != nil {
		return err
	}
	rec := s.records.containerOf(&c)
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

// merge returns a container's resources after an update. Zero values in the update change nothing.
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

// linuxResources converts the update r, after which a container has next. It leaves out zero values, which change
// nothing.
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
