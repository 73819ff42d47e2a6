package cri

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/cri/spec"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/oci"
)

// maxHosts bounds a file that becomes a container's /etc/hosts, in bytes.
const maxHosts = 1 << 20

// specify makes a container's OCI specification, with the content of what its
// configuration names by a path on the host.
func (p *pod) specify(ctr *container, config *runtimeapi.ContainerConfig, img image.Image) (*specs.Spec, error) {
	in := spec.Input{ID: ctr.ID, Container: config, Sandbox: p.config, Image: img.Config}
	var err error
	if in.Hosts, err = p.s.hostsOf(config); err != nil {
		return nil, err
	}
	if in.Seccomp, err = p.s.seccomp(config.GetLinux().GetSecurityContext().GetSeccomp()); err != nil {
		return nil, err
	}
	if err := p.checkTarget(config); err != nil {
		return nil, err
	}
	if ctr.Termination != nil {
		in.Termination = ctr.Termination.Container
	}
	return spec.Container(in)
}

// hostsOf is the content of the file that is mounted as /etc/hosts, as a kubelet
// does; empty for none.
func (s *Service) hostsOf(config *runtimeapi.ContainerConfig) (string, error) {
	for _, mount := range config.GetMounts() {
		if mount.GetContainerPath() != "/etc/hosts" || mount.GetHostPath() == "" {
			continue
		}
		root, name, err := s.hostPath(mount.GetHostPath())
		if err != nil {
			return "", fmt.Errorf("read the hosts file: %w", err)
		}
		defer root.Close()
		data, err := readFile(name, maxHosts, func(name string) (*os.File, error) {
			return root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		})
		if err != nil {
			return "", fmt.Errorf("read the hosts file: %w", err)
		}
		return string(data), nil
	}
	return "", nil
}

// seccomp reads a profile of type Localhost, which must lie in the engine's
// directory of profiles; nil for other types.
func (s *Service) seccomp(profile *runtimeapi.SecurityProfile) (*specs.LinuxSeccomp, error) {
	if profile.GetProfileType() != runtimeapi.SecurityProfile_Localhost {
		return nil, nil
	}
	ref, dir := profile.GetLocalhostRef(), s.o.SeccompDir
	if dir == "" {
		dir = s.o.Roots.Seccomp()
	}
	name := ref
	if filepath.IsAbs(ref) {
		var err error
		if name, err = filepath.Rel(dir, ref); err != nil {
			name = ""
		}
	}
	if !filepath.IsLocal(name) {
		return nil, invalid("seccomp profile %q is not in %s", ref, dir)
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, invalid("seccomp profile %q: there is no directory of profiles at %s", name, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read seccomp profile %q: %w", name, err)
	}
	defer root.Close()
	data, err := readFile(name, oci.MaxProfile, func(path string) (*os.File, error) {
		return root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, invalid("seccomp profile %q: there is no such file in %s", name, dir)
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
		return nil, invalid("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, invalid("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}
