package spec

import (
	"fmt"
	"path"
	"sort"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/oci"
)

// mounts adds the container's volumes to those that every container has, of
// which /dev/shm is the last.
func mounts(out []specs.Mount, in Input) ([]specs.Mount, error) {
	if in.Container.GetLinux().GetSecurityContext().GetPrivileged() {
		for i := range out {
			if out[i].Destination == "/sys" || out[i].Destination == "/sys/fs/cgroup" {
				out[i].Options[len(out[i].Options)-1] = "rw"
			}
		}
	}
	var volumes []specs.Mount
	for _, mount := range in.Container.GetMounts() {
		if at := mount.GetContainerPath(); written(at) {
			if at == "/etc/hosts" && in.Hosts != "" {
				volumes = append(volumes, specs.Mount{Destination: at, Type: agentv1.MountFile, Source: in.Hosts, Options: []string{"bind", access(mount)}})
			}
			continue
		}
		volume, err := volume(mount, in.Sandbox)
		if err != nil {
			return nil, err
		}
		if mount.GetContainerPath() == "/dev/shm" {
			out = out[:len(out)-1]
		}
		volumes = append(volumes, volume)
	}
	if at := in.Termination; at != "" && !written(at) {
		if !path.IsAbs(at) || path.Clean(at) == "/" {
			return nil, fmt.Errorf("%w: termination message at %q", oci.ErrInvalid, at)
		}
		volumes = append(volumes, specs.Mount{Destination: path.Clean(at), Type: agentv1.MountTermination, Source: "termination", Options: []string{"bind", "rw"}})
	}
	// A mount within another must come after it.
	sort.SliceStable(volumes, func(i, j int) bool {
		return strings.Count(volumes[i].Destination, "/") < strings.Count(volumes[j].Destination, "/")
	})
	return append(out, volumes...), nil
}

// written tells the files that the agent writes for every container: a mount
// of the door's own copy is left out.
func written(destination string) bool {
	switch destination {
	case "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log":
		return true
	}
	return false
}

// volume converts a mount. The only host paths that mean something in the
// guest are those of the kubelet's volumes.
func volume(mount *runtimeapi.Mount, sandbox *runtimeapi.PodSandboxConfig) (specs.Mount, error) {
	destination := mount.GetContainerPath()
	if !path.IsAbs(destination) || path.Clean(destination) == "/" {
		return specs.Mount{}, fmt.Errorf("%w: mount at %q", oci.ErrInvalid, destination)
	}
	out := specs.Mount{Destination: path.Clean(destination)}
	var err error
	if out.Options, err = mountOptions(mount); err != nil {
		return out, fmt.Errorf("%w at %s", err, destination)
	}
	part := mount.GetImageSubPath()
	if image := mount.GetImage().GetImage(); image != "" {
		out.Type, out.Source = agentv1.MountImage, image
	} else {
		v := annotations.VolumeOf(mount.GetHostPath())
		switch {
		case v.Kind == "":
			return out, fmt.Errorf("%w: mount of a host path at %s", oci.ErrNotSupported, destination)
		case v.Files:
			out.Type = agentv1.MountFiles
		default:
			out.Type = agentv1.MountEmptyDir
			wishes, err := emptyDir(sandbox.GetAnnotations()[annotations.EmptyDir+v.Name])
			if err != nil {
				return out, fmt.Errorf("volume %s: %w", v.Name, err)
			}
			out.Options = append(out.Options, wishes...)
		}
		out.Source, part = v.Name, v.SubPath
		if group := sandbox.GetAnnotations()[annotations.FSGroup]; group != "" {
			out.Options = append(out.Options, "group="+group)
		}
	}
	if part != "" {
		out.Options = append(out.Options, "subpath="+part)
	}
	return out, nil
}

// mountOptions are those of a mount that say who may do what with it.
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
		return nil, fmt.Errorf("%w: recursive read-only, and not read-only or not private, mount", oci.ErrInvalid)
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

// emptyDir are the options of an emptyDir's annotation.
func emptyDir(wish string) ([]string, error) {
	if wish == "" {
		return nil, nil
	}
	options := strings.Split(wish, ",")
	for _, option := range options {
		if option != "medium=Memory" && option != "medium=HugePages" && !strings.HasPrefix(option, "size=") && !strings.HasPrefix(option, "mode=") {
			return nil, fmt.Errorf("%w: option %q", oci.ErrInvalid, option)
		}
	}
	return options, nil
}

func access(mount *runtimeapi.Mount) string {
	if mount.GetReadonly() {
		return "ro"
	}
	return "rw"
}
