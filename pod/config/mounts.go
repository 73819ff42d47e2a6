package config

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/volume"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// fsGroup returns the group of the pod's volumes, nil for none.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// containerMounts returns the container's mounts of the pod's volumes. images are the references of image volumes, and
// lookup finds the container's variables.
func containerMounts(
	o *Options, container *corev1.Container, images map[string]string, lookup func(string) (string, bool),
) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	for i := range container.VolumeMounts {
		mount := &container.VolumeMounts[i]
		part, err := subPath(mount, lookup)
		if err != nil {
			return nil, err
		}
		one, err := containerMount(o, mount, part, images)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", mount.Name, err)
		}
		out = append(out, one)
	}
	return out, nil
}

func containerMount(o *Options, mount *corev1.VolumeMount, part string, images map[string]string) (*runtimeapi.Mount, error) {
	var source *corev1.VolumeSource
	for i := range o.Pod.Spec.Volumes {
		if o.Pod.Spec.Volumes[i].Name == mount.Name {
			source = &o.Pod.Spec.Volumes[i].VolumeSource
		}
	}
	if source == nil {
		return nil, fmt.Errorf("the pod has no such volume")
	}
	place := mount.MountPath
	if !path.IsAbs(place) {
		place = path.Join("/", place)
	}
	out := &runtimeapi.Mount{ContainerPath: place, Readonly: mount.ReadOnly, MountOptions: mount.BindMountOptions}
	if mode := mount.RecursiveReadOnly; mode != nil && *mode != corev1.RecursiveReadOnlyDisabled {
		out.RecursiveReadOnly = true
	}
	if mode := mount.MountPropagation; mode != nil && *mode == corev1.MountPropagationHostToContainer {
		out.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	}
	directory := volume.Plugin(source)
	switch {
	case source.EmptyDir != nil:
		directory = layout.EmptyDir
	case source.HostPath != nil:
		directory = layout.HostPath
	case volume.Claimed(source):
		if directory = layout.HostPath; o.Claimed == nil && source.PersistentVolumeClaim == nil {
			return nil, fmt.Errorf("its kind is not honoured")
		}
		out.Readonly = out.Readonly || readOnly(o, mount.Name, source)
	case source.Image != nil:
		out.Readonly, out.ImageSubPath = true, part
		out.Image = &runtimeapi.ImageSpec{Image: images[mount.Name], UserSpecifiedImage: source.Image.Reference}
		return out, nil
	case directory == "":
		return nil, fmt.Errorf("its kind is not honoured")
	default:
		out.Readonly = true // a rewrite of the volume would remove a container's changes
	}
	out.HostPath = filepath.Join(o.Volumes(), directory, mount.Name, part)
	return out, nil
}

// readOnly reports whether a volume of a claim or driver is read-only.
func readOnly(o *Options, name string, source *corev1.VolumeSource) bool {
	claim, driver := source.PersistentVolumeClaim, source.CSI
	return o.Claimed[name].ReadOnly || claim != nil && claim.ReadOnly || driver != nil && driver.ReadOnly != nil && *driver.ReadOnly
}

// containerDevices returns the container's disks and block devices among the pod's volumes.
func containerDevices(o *Options, container *corev1.Container) (out []*runtimeapi.Device) {
	for _, device := range container.VolumeDevices {
		access := cmp.Or(o.Pod.Annotations[annotations.Device+device.Name], "mrw")
		if o.Claimed[device.Name].ReadOnly {
			access = "r" // overrides the pod's choice
		}
		out = append(out, &runtimeapi.Device{
			ContainerPath: device.DevicePath, HostPath: filepath.Join(o.Volumes(), layout.HostPath, device.Name), Permissions: access,
		})
	}
	return out
}

// subPath returns the mounted part of a volume, empty for the whole volume.
func subPath(mount *corev1.VolumeMount, lookup func(string) (string, bool)) (string, error) {
	part, told := mount.SubPath, mount.SubPath
	if mount.SubPathExpr != "" {
		missing := ""
		told = mount.SubPathExpr // its expansion may be a secret
		part = expand(mount.SubPathExpr, func(name string) (string, bool) {
			value, known := lookup(name)
			if !known {
				missing = name
			}
			return value, known
		})
		if missing != "" {
			return "", fmt.Errorf("failed to expand subPath for volumeMount %q: missing value for %q", mount.Name, missing)
		}
	}
	switch {
	case path.IsAbs(part):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", told)
	case slices.Contains(strings.Split(part, "/"), ".."):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", told)
	}
	return part, nil
}

// MountStatuses returns the states of the container's mounts, like a kubelet.
func MountStatuses(container *corev1.Container) (out []corev1.VolumeMountStatus) {
	for _, mount := range container.VolumeMounts {
		status := corev1.VolumeMountStatus{Name: mount.Name, MountPath: mount.MountPath, ReadOnly: mount.ReadOnly}
		if mount.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if wish := mount.RecursiveReadOnly; wish != nil && *wish != corev1.RecursiveReadOnlyDisabled {
				mode = corev1.RecursiveReadOnlyEnabled // the guest's kernel and runtime support it
			}
			status.RecursiveReadOnly = &mode
		}
		out = append(out, status)
	}
	return out
}
