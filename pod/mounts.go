package pod

import (
	"fmt"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/volume"
)

// volumeAnnotations tell the engine what the CRI has no field for.
func volumeAnnotations(pod *corev1.Pod, out map[string]string) {
	if group := fsGroup(pod); group != nil {
		out[annotations.FSGroup] = strconv.FormatInt(*group, 10)
	}
	for _, volume := range pod.Spec.Volumes {
		if value := emptyDirOptions(volume.EmptyDir); value != "" {
			out[annotations.EmptyDir+volume.Name] = value
		}
	}
}

// fsGroup is the group that the pod's volumes belong to, nil for none.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

func emptyDirOptions(source *corev1.EmptyDirVolumeSource) string {
	if source == nil {
		return ""
	}
	var out string
	if source.Medium == corev1.StorageMediumMemory {
		out = "medium=Memory"
	}
	if source.SizeLimit != nil && !source.SizeLimit.IsZero() {
		if out != "" {
			out += ","
		}
		out += "size=" + strconv.FormatInt(source.SizeLimit.Value(), 10)
	}
	return out
}

func containerMounts(o *Options, container *corev1.Container) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	for i := range container.VolumeMounts {
		mount := &container.VolumeMounts[i]
		one, err := containerMount(o, mount)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", mount.Name, err)
		}
		out = append(out, one)
	}
	return out, nil
}

func containerMount(o *Options, mount *corev1.VolumeMount) (*runtimeapi.Mount, error) {
	var source *corev1.VolumeSource
	for i := range o.Pod.Spec.Volumes {
		if o.Pod.Spec.Volumes[i].Name == mount.Name {
			source = &o.Pod.Spec.Volumes[i].VolumeSource
		}
	}
	if source == nil {
		return nil, fmt.Errorf("the pod has no such volume")
	}
	out := &runtimeapi.Mount{ContainerPath: mount.MountPath, Readonly: mount.ReadOnly}
	directory := annotations.EmptyDirPath
	if source.EmptyDir == nil {
		if directory = volume.Plugin(source); directory == "" {
			return nil, fmt.Errorf("its kind is not honoured")
		}
		out.Readonly = true // nothing that a container writes there would last
	}
	out.HostPath = filepath.Join(o.volumeDir(), directory, mount.Name)
	return out, nil
}
