package spec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
)

// Node describes a block device of the host.
type Node struct {
	Mode   uint32 // the permissions, as in chmod(2)
	Group  int    // the number of its group
	Device uint64 // its device number, as in stat(2)
}

// block returns the mount of a block device of the host.
func (in Input) block(hostPath, at, access string) (m containerv1.Mount, ok bool, err error) {
	if in.Block == nil {
		return m, false, nil
	}
	node, ok, err := in.Block(hostPath)
	return containerv1.Mount{Destination: at, Group: node.Group, Source: containerv1.Block{
		Name: hostPath, Access: access, Mode: node.Mode, ReadOnly: !strings.Contains(access, "w"), Device: node.Device,
	}}, ok, err
}

// devices adds the devices that the container names by the host's paths, and returns the mounts of block devices. It
// rejects devices other than these and nodes, because the pod's VM does not have them.
func devices(out *specs.Linux, in Input) (disks []containerv1.Mount, err error) {
	for _, w := range in.Container.GetDevices() {
		from := in.from(w.GetHostPath())
		if _, ok := containerv1.VolumeOf(from); ok {
			continue // it is among the mounts
		}
		at, access := path.Clean(w.GetContainerPath()), w.GetPermissions()
		if access == "" {
			access = "rwm"
		}
		n, ok := oci.NodeAt(from)
		disk, isDisk := containerv1.Mount{}, false
		if !ok {
			if disk, isDisk, err = in.block(from, at, access); err != nil {
				return nil, fmt.Errorf("device at %s: %w", at, err)
			}
		}
		switch {
		case !ok && !isDisk:
			return nil, fmt.Errorf("%w: device %s of the host: the pod's VM does not have it", oci.ErrNotSupported, from)
		case !path.IsAbs(at) || at == "/":
			return nil, fmt.Errorf("%w: device %s at %q", oci.ErrInvalid, from, w.GetContainerPath())
		case strings.Trim(access, "rwm") != "":
			return nil, fmt.Errorf("%w: permissions %q of device %s", oci.ErrInvalid, access, from)
		}
		if isDisk {
			disks = append(disks, disk)
			continue
		}
		if !n.Common {
			out.Resources.Devices = append(out.Resources.Devices, specs.LinuxDeviceCgroup{
				Allow: true, Type: "c", Major: &n.Major, Minor: &n.Minor, Access: access,
			})
		}
		there := func(d specs.LinuxDevice) bool { return d.Path == at }
		if n.Common && at == from || slices.ContainsFunc(out.Devices, there) {
			continue
		}
		out.Devices = append(out.Devices, specs.LinuxDevice{Path: at, Type: "c", Major: n.Major, Minor: n.Minor, FileMode: &n.Mode})
	}
	return disks, nil
}

// from resolves a device's host path: to the name of a named volume, the path of a hostPath, or itself.
func (in Input) from(hostPath string) string {
	v, ok, err := in.Volumes.Of(hostPath)
	if err != nil || !ok || !v.Host || v.SubPath != "" {
		return hostPath
	}
	if name := in.Options.HostPaths[v.Name].Name; name != "" {
		return name
	}
	return hostPath
}

// bareDisks returns the container's block devices from named volumes.
func bareDisks(in Input) (out []containerv1.Mount, err error) {
	for _, d := range in.Container.GetDevices() {
		volume, ok := containerv1.VolumeOf(in.from(d.GetHostPath()))
		if !ok {
			continue
		}
		at, access := path.Clean(d.GetContainerPath()), d.GetPermissions()
		switch {
		case !path.IsAbs(at) || at == "/" || access == "" || strings.Trim(access, "rwm") != "":
			return nil, fmt.Errorf("%w: device of volume %s at %q, permissions %q", oci.ErrInvalid, volume, d.GetContainerPath(), access)
		case in.Bare == nil:
			return nil, fmt.Errorf("%w: device at %s: the pod has no volume %q", oci.ErrInvalid, at, volume)
		}
		if err := in.Bare(volume); err != nil {
			return nil, fmt.Errorf("device at %s: %w", at, err)
		}
		source := containerv1.Block{Name: containerv1.VolumeName(volume), Access: access, Mode: 0o660}
		out = append(out, containerv1.Mount{Destination: at, Source: source, Group: in.Options.FSGroup})
	}
	return out, nil
}
