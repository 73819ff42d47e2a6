package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/cri/spec"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/oci"
)

// specify returns a container's OCI specification and its further mounts, with the content of the files that its configuration names on the
// host.
func (s *Service) specify(ctx context.Context, p *engine.Pod, in spec.Input) (*specs.Spec, []containerv1.Mount, error) {
	config := in.Container
	in.Named, in.Bare = s.named, s.checkBlockDevice
	in.Block = func(path string) (spec.Node, bool, error) { return blockNode(ctx, path) }
	var err error
	if in.Seccomp, err = seccomp(s.roots.Seccomp(), config.GetLinux().GetSecurityContext().GetSeccomp()); err != nil {
		return nil, nil, err
	}
	if err := checkTarget(p, config); err != nil {
		return nil, nil, err
	}
	if err := kubeletDirs(s.volumes, &in.Options, config); err != nil {
		return nil, nil, err
	}
	return spec.Container(in)
}

// named returns the source of a mount of a named volume.
func (s *Service) named(name, cache string) (containerv1.Source, error) {
	v, err := s.engine.Volumes().Get(name)
	switch {
	case err != nil:
		return nil, err
	case v.Damage != "":
		return nil, failure.New(errdefs.ErrFailedPrecondition, "volume %s is damaged: %s", name, v.Damage)
	case v.Kind == named.Shared:
		return containerv1.Share{Name: containerv1.VolumeName(name), Cache: cache}, nil
	case v.Kind == named.Disk && cache == "":
		return containerv1.Block{Name: containerv1.VolumeName(name), FS: containerv1.FSExt4}, nil
	case v.Kind == named.Disk:
		return nil, failure.Invalid("volume %s is a disk, so it has no cache mode", name)
	}
	return nil, failure.Invalid("volume %s is a bare disk, which cannot be mounted", name)
}

// blockNode returns the node of a host path if it is a block device, after following links. It returns an error if that
// cannot be determined. Missing and inaccessible paths are not errors here, because later steps reject them.
func blockNode(ctx context.Context, path string) (node spec.Node, ok bool, err error) {
	n, err := place.Stat(ctx, path)
	switch {
	case errors.Is(err, place.ErrSilent):
		return node, false, &failure.Error{Class: context.DeadlineExceeded, Text: "look for a block device", Err: err}
	case ctx.Err() != nil:
		return node, false, failure.Wrap(err, "look for a block device")
	case err != nil || !n.IsBlock() || n.Device == 0:
		return node, false, nil //nolint:nilerr // later steps reject it
	}
	return spec.Node{Mode: n.Mode & 0o777, Group: int(n.Group), Device: n.Device}, true, nil
}

// checkBlockDevice returns an error if a named volume is not a block device.
func (s *Service) checkBlockDevice(name string) error {
	v, err := s.engine.Volumes().Get(name)
	if err == nil && v.Damage != "" {
		err = failure.New(errdefs.ErrFailedPrecondition, "volume %s is damaged: %s", name, v.Damage)
	}
	if err == nil && v.Kind != named.Block {
		err = failure.Invalid("volume %s must be a bare disk, but is %s", name, v.Kind)
	}
	return err
}

// checkTarget rejects a container that would see the processes of a container of another pod.
func checkTarget(p *engine.Pod, config *runtimeapi.ContainerConfig) error {
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetPid() != runtimeapi.NamespaceMode_TARGET ||
		slices.ContainsFunc(p.Containers, func(c engine.Container) bool { return c.ID == options.GetTargetId() }) {
		return nil
	}
	return failure.New(errdefs.ErrNotFound, "the pod has no target container %q", options.GetTargetId())
}

// seccomp reads a profile of type Localhost, which must be in dir. It returns nil for other
// types.
func seccomp(dir string, profile *runtimeapi.SecurityProfile) (*specs.LinuxSeccomp, error) {
	if profile.GetProfileType() != runtimeapi.SecurityProfile_Localhost {
		return nil, nil
	}
	ref := profile.GetLocalhostRef()
	name := ref
	if filepath.IsAbs(ref) {
		var err error
		if name, err = filepath.Rel(dir, ref); err != nil {
			name = ""
		}
	}
	if !filepath.IsLocal(name) {
		return nil, failure.Invalid("seccomp profile %q is not in %s", ref, dir)
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, failure.Invalid("seccomp profile %q: the profile directory %s does not exist", name, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read seccomp profile %q: %w", name, err)
	}
	defer root.Close()
	data, err := readFile(name, oci.MaxProfile, func(path string) (*os.File, error) {
		return root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, failure.Invalid("seccomp profile %q: no such file in %s", name, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read seccomp profile %q: %w", name, err)
	}
	out, err := oci.ParseSeccomp(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64, open func(string) (*os.File, error)) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, failure.Invalid("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, failure.Invalid("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}
