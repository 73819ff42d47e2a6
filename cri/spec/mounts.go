package spec

import (
	"fmt"
	"os"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
)

// mounts returns the container's volumes, and the default mounts that they leave. closed are device nodes that the
// container may not open.
func mounts(usual []specs.Mount, in Input) (_ []specs.Mount, volumes []containerv1.Mount, closed []specs.LinuxDevice, _ error) {
	if in.Container.GetLinux().GetSecurityContext().GetPrivileged() {
		for _, m := range usual {
			if m.Destination == "/sys" || m.Destination == "/sys/fs/cgroup" {
				m.Options[len(m.Options)-1] = "rw"
			}
		}
	}
	for _, mount := range in.Container.GetMounts() {
		volume, err := volume(mount, in)
		if err != nil {
			return nil, nil, nil, err
		}
		usual = slices.DeleteFunc(usual, func(m specs.Mount) bool { return covers(volume.Destination, m.Destination) })
		if disk, ok := volume.Source.(containerv1.Block); ok && disk.FS == containerv1.NoFS && disk.Access == "" {
			closed = append(closed, closedNode(volume, disk))
			continue
		}
		volumes = append(volumes, volume)
	}
	if in.Hosts.Text != "" {
		mode := "rw"
		if in.Hosts.ReadOnly {
			mode = "ro"
		}
		volumes = append(volumes, containerv1.Mount{
			Destination: "/etc/hosts", Source: containerv1.Text{Content: in.Hosts.Text}, Options: []string{"bind", mode},
		})
	}
	bare, err := bareDisks(in)
	if err != nil {
		return nil, nil, nil, err
	}
	volumes = append(volumes, bare...)
	if at := in.Termination; at != "" && path.Clean(at) != "/dev/termination-log" {
		if !path.IsAbs(at) || path.Clean(at) == "/" {
			return nil, nil, nil, fmt.Errorf("%w: termination message at %q", oci.ErrInvalid, at)
		}
		volumes = append(volumes, containerv1.Mount{
			Destination: path.Clean(at), Source: containerv1.Termination{}, Options: []string{"bind", "rw"},
		})
	}
	// A mount inside another must come after it.
	sort.SliceStable(volumes, func(i, j int) bool {
		return strings.Count(volumes[i].Destination, "/") < strings.Count(volumes[j].Destination, "/")
	})
	return usual, volumes, closed, nil
}

// covers reports whether a volume replaces a default mount. It has the same destination, or it is at /dev and replaces
// all mounts below, as in other runtimes.
func covers(volume, usual string) bool {
	return volume == usual || volume == "/dev" && strings.HasPrefix(usual, "/dev/")
}

// volume converts a mount. A host path that belongs to no volume is shared with the guest.
func volume(mount *runtimeapi.Mount, in Input) (m containerv1.Mount, err error) {
	destination := mount.GetContainerPath()
	if !path.IsAbs(destination) || path.Clean(destination) == "/" {
		return m, fmt.Errorf("%w: mount at %q", oci.ErrInvalid, destination)
	}
	m.Destination = path.Clean(destination)
	if m.Options, err = mountOptions(mount); err != nil {
		return m, fmt.Errorf("%w at %s", err, destination)
	}
	if image := mount.GetImage().GetImage(); image != "" {
		m.Source, m.SubPath = containerv1.Image{ID: image}, mount.GetImageSubPath()
		return m, nil
	}
	v, ok, err := in.Volumes.Of(mount.GetHostPath())
	switch {
	case err != nil:
		return m, fmt.Errorf("%w: mount at %s: %w", oci.ErrInvalid, destination, err)
	case !ok && !path.IsAbs(mount.GetHostPath()):
		return m, fmt.Errorf("%w: mount of the host path %.200q at %s", oci.ErrInvalid, mount.GetHostPath(), destination)
	case !ok:
		return in.hostPath(m, containerv1.Share{Name: mount.GetHostPath()}, mount)
	case v.Host:
		share, named := in.Options.HostPaths[v.Name]
		if !named {
			return m, fmt.Errorf("%w: mount at %s: the pod has no hostPath volume %q", oci.ErrInvalid, destination, v.Name)
		}
		m.Source, m.SubPath = share, v.SubPath
		volume, ok := containerv1.VolumeOf(share.Name)
		if disk, is := in.Options.Disks[v.Name]; is {
			m.Source, m.Group = disk, in.Options.FSGroup
			return m, nil
		}
		if !ok {
			return in.hostPath(m, share, mount)
		}
		if in.Named == nil {
			return m, fmt.Errorf("%w: mount at %s: the pod has no volume %q", oci.ErrInvalid, destination, volume)
		}
		if m.Source, err = in.Named(volume, share.Cache); err != nil {
			return m, fmt.Errorf("mount at %s: %w", destination, err)
		}
		m.Group = in.Options.FSGroup
		if _, disk := m.Source.(containerv1.Block); disk && in.Options.Filled[v.Name] && m.SubPath == "" {
			m.Copy = true
		}
		return m, nil
	case v.Files:
		m.Source = containerv1.Files{Name: v.Name}
	default:
		dir := in.Options.EmptyDirs[v.Name]
		dir.Name = v.Name
		m.Source = dir
	}
	m.SubPath, m.Group = v.SubPath, in.Options.FSGroup
	return m, nil
}

// hostPath mounts a path of the host. A block device becomes a node that only a privileged container may open. Other
// paths are shared.
func (in Input) hostPath(m containerv1.Mount, share containerv1.Share, mount *runtimeapi.Mount) (containerv1.Mount, error) {
	access := "rwm"
	switch {
	case !in.Container.GetLinux().GetSecurityContext().GetPrivileged():
		access = ""
	case mount.GetReadonly():
		access = "r"
	}
	disk, ok, err := in.block(share.Name, m.Destination, access)
	if err != nil {
		return m, fmt.Errorf("mount at %s: %w", m.Destination, err)
	}
	if ok && m.SubPath == "" {
		return disk, nil
	}
	m.Source = share
	return m, nil
}

// closedNode returns the node of a block device that the pod's VM does not have. It has the host's device number, and
// no rule of the device cgroup allows it.
func closedNode(m containerv1.Mount, disk containerv1.Block) specs.LinuxDevice {
	mode, group := os.FileMode(disk.Mode), uint32(m.Group)
	return specs.LinuxDevice{
		Path: m.Destination, Type: "b", Major: int64(unix.Major(disk.Device)), Minor: int64(unix.Minor(disk.Device)),
		FileMode: &mode, GID: &group,
	}
}

// mountOptions returns the options for access, propagation and flags of a mount.
func mountOptions(mount *runtimeapi.Mount) ([]string, error) {
	options := []string{"rbind", "rprivate", "rw"}
	switch mount.GetPropagation() {
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return nil, fmt.Errorf("%w: bidirectional propagation of the mount", oci.ErrNotSupported)
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		options[1] = "rslave"
	}
	switch {
	case mount.GetRecursiveReadOnly() && (!mount.GetReadonly() || options[1] != "rprivate"):
		return nil, fmt.Errorf("%w: a recursive read-only mount must be read-only and private", oci.ErrInvalid)
	case mount.GetRecursiveReadOnly():
		options[2] = "rro"
	case mount.GetReadonly() || mount.GetImage() != nil:
		options[2] = "ro"
	}
	for _, option := range mount.GetMountOptions() {
		switch option {
		case "noexec", "nodev", "nosuid":
			options = append(options, option)
		default:
			return nil, fmt.Errorf("%w: option %q of the mount", oci.ErrInvalid, option)
		}
	}
	return options, nil
}
