package podapi

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// volumes checks the pod's volumes and returns their names.
func (c checker) volumes(pod *corev1.Pod) map[string]bool {
	names := map[string]bool{}
	for i := range pod.Spec.Volumes {
		volume, at := &pod.Spec.Volumes[i], fmt.Sprintf("spec.volumes[%d].", i)
		c.name(at+"name", volume.Name, validation.IsDNS1123Label)
		if names[volume.Name] {
			c.fault(at+"name", "%q appears twice", volume.Name)
		}
		names[volume.Name] = true
		c.volume(pod, &volume.VolumeSource, at)
	}
	return names
}

func (c checker) volume(pod *corev1.Pod, source *corev1.VolumeSource, at string) {
	kinds := 0
	if empty := source.EmptyDir; empty != nil {
		kinds++
		if empty.SizeLimit != nil && empty.SizeLimit.Sign() < 0 {
			c.fault(at+"emptyDir.sizeLimit", "%s is negative", empty.SizeLimit)
		}
		if mode := empty.Mode; mode != nil && (*mode < 0 || *mode > 0o1777) {
			c.fault(at+"emptyDir.mode", "%d is not between 0 and 01777", *mode)
		}
	}
	if host := source.HostPath; host != nil {
		kinds++
		c.hostPath(host, at+"hostPath.")
	}
	if from := source.PersistentVolumeClaim; from != nil {
		kinds++
		c.claimSource(from, at+"persistentVolumeClaim.")
	}
	if from := source.Image; from != nil {
		kinds++
		if from.Reference == "" {
			c.fault(at+"image.reference", "is required")
		}
		oneOf(c, at+"image.pullPolicy", from.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	}
	if from := source.ConfigMap; from != nil {
		kinds++
		c.reference(at+"configMap.name", from.Name, from.Optional, validation.IsDNS1123Subdomain)
		c.mode(at+"configMap.defaultMode", from.DefaultMode)
		c.id(at+"configMap.defaultUser", from.DefaultUser)
		c.items(from.Items, from.Optional, at+"configMap.")
	}
	if from := source.Secret; from != nil {
		kinds++
		c.reference(at+"secret.secretName", from.SecretName, from.Optional, validation.IsDNS1123Subdomain)
		c.mode(at+"secret.defaultMode", from.DefaultMode)
		c.id(at+"secret.defaultUser", from.DefaultUser)
		c.items(from.Items, from.Optional, at+"secret.")
	}
	if from := source.DownwardAPI; from != nil {
		kinds++
		c.mode(at+"downwardAPI.defaultMode", from.DefaultMode)
		c.id(at+"downwardAPI.defaultUser", from.DefaultUser)
		c.downward(pod, from.Items, at+"downwardAPI.")
	}
	if from := source.Projected; from != nil {
		kinds++
		c.mode(at+"projected.defaultMode", from.DefaultMode)
		c.id(at+"projected.defaultUser", from.DefaultUser)
		c.projected(pod, from.Sources, at+"projected.")
	}
	if kinds > 1 {
		c.fault(strings.TrimSuffix(at, "."), "is of more than one kind")
	}
}

// cache checks the annotation for the cache mode of a volume.
func (c checker) cache(pod *corev1.Pod, key, volume string) {
	const field = "metadata.annotations"
	at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume })
	if at < 0 || pod.Spec.Volumes[at].HostPath == nil && pod.Spec.Volumes[at].PersistentVolumeClaim == nil {
		c.fault(field, "%q: the pod has no hostPath or persistentVolumeClaim %q", key, volume)
		return
	}
	if value := pod.Annotations[key]; !slices.Contains([]string{"auto", "none", "always"}, value) {
		c.fault(field, "%q: %.64q is not auto, none or always", key, value)
	}
}

// copied checks the annotation for a claim that is filled from the image.
func (c checker) copied(pod *corev1.Pod, key, volume string) {
	const field = "metadata.annotations"
	claims := func(v corev1.Volume) bool { return v.Name == volume && v.PersistentVolumeClaim != nil }
	if !slices.ContainsFunc(pod.Spec.Volumes, claims) {
		c.fault(field, "%q: the pod has no persistentVolumeClaim %q", key, volume)
	}
	if value := pod.Annotations[key]; value != annotations.CopyImage {
		c.fault(field, "%q: %.64q is not %s", key, value, annotations.CopyImage)
	}
}

func (c checker) hostPath(source *corev1.HostPathVolumeSource, at string) {
	switch {
	case source.Path == "":
		c.fault(at+"path", "is required")
	case !path.IsAbs(source.Path):
		c.fault(at+"path", "%.200q is not an absolute path", source.Path)
	case slices.Contains(strings.Split(source.Path, "/"), ".."):
		c.fault(at+"path", "must not contain '..'")
	}
	if source.Type != nil {
		oneOf(c, at+"type", *source.Type, corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
			corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
	}
}

// projected checks the sources of one volume. Their paths must be unique.
func (c checker) projected(pod *corev1.Pod, sources []corev1.VolumeProjection, at string) {
	paths := map[string]bool{}
	once := func(field, name string) {
		if paths[name] {
			c.fault(field, "%q appears twice", name)
		}
		paths[name] = true
	}
	keys := func(at, name string, optional *bool, items []corev1.KeyToPath) {
		c.reference(at+"name", name, optional, validation.IsDNS1123Subdomain)
		c.items(items, optional, at)
		for i, item := range items {
			once(fmt.Sprintf("%sitems[%d].path", at, i), item.Path)
		}
	}
	for i := range sources {
		source, at := &sources[i], fmt.Sprintf("%ssources[%d].", at, i)
		kinds := 0
		if from := source.ConfigMap; from != nil {
			kinds++
			keys(at+"configMap.", from.Name, from.Optional, from.Items)
		}
		if from := source.Secret; from != nil {
			kinds++
			keys(at+"secret.", from.Name, from.Optional, from.Items)
		}
		if from := source.DownwardAPI; from != nil {
			kinds++
			c.downward(pod, from.Items, at+"downwardAPI.")
			for i, item := range from.Items {
				once(fmt.Sprintf("%sdownwardAPI.items[%d].path", at, i), item.Path)
			}
		}
		if kinds > 1 {
			c.fault(strings.TrimSuffix(at, "."), "is of more than one kind")
		}
	}
}

func (c checker) items(items []corev1.KeyToPath, optional *bool, at string) {
	for i, item := range items {
		at := fmt.Sprintf("%sitems[%d].", at, i)
		c.reference(at+"key", item.Key, optional, validation.IsConfigMapKey)
		c.path(at+"path", item.Path)
		c.mode(at+"mode", item.Mode)
		c.id(at+"user", item.User)
	}
}

func (c checker) downward(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, at string) {
	for i, item := range items {
		at := fmt.Sprintf("%sitems[%d].", at, i)
		c.path(at+"path", item.Path)
		c.mode(at+"mode", item.Mode)
		c.id(at+"user", item.User)
		switch field, resource := item.FieldRef, item.ResourceFieldRef; {
		case field != nil && resource != nil:
			c.fault(at+"resourceFieldRef", "cannot be together with fieldRef")
		case field != nil:
			c.fieldRef(field, at+"fieldRef.")
		case resource != nil:
			c.resourceRef(resource, at+"resourceFieldRef.")
			c.containerOf(pod, resource, at+"resourceFieldRef.")
		default:
			c.fault(strings.TrimSuffix(at, "."), "names no source")
		}
	}
}

// containerOf checks the name of the container that a volume refers to.
func (c checker) containerOf(pod *corev1.Pod, ref *corev1.ResourceFieldSelector, at string) {
	if ref.ContainerName == "" {
		c.fault(at+"containerName", "is required")
		return
	}
	named := func(container *corev1.Container) bool { return container.Name == ref.ContainerName }
	if !podspec.Any(&pod.Spec, named) {
		c.fault(at+"containerName", "there is no container %q", ref.ContainerName)
	}
}

// path checks the path of a file within a volume.
func (c checker) path(field, name string) {
	switch {
	case name == "":
		c.fault(field, "is required")
	case path.IsAbs(name), strings.HasPrefix(name, ".."), slices.Contains(strings.Split(name, "/"), ".."), strings.ContainsRune(name, 0):
		c.fault(field, "%q is not a path within a volume", name)
	}
}

func (c checker) mode(field string, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.fault(field, "%d is not between 0 and 0777", *mode)
	}
}

// mounts checks a container's mounts of the pod's volumes.
func (c checker) mounts(container *corev1.Container, at string, volumes map[string]bool) {
	paths := map[string]bool{}
	for i, mount := range container.VolumeMounts {
		at := fmt.Sprintf("%svolumeMounts[%d].", at, i)
		switch {
		case mount.Name == "":
			c.fault(at+"name", "is required")
		case !volumes[mount.Name]:
			c.fault(at+"name", "there is no volume %q", mount.Name)
		}
		place := path.Join("/", mount.MountPath) // a relative path begins at the root
		switch {
		case mount.MountPath == "":
			c.fault(at+"mountPath", "is required")
		case place == "/" || strings.ContainsAny(mount.MountPath, ":\x00"):
			c.fault(at+"mountPath", "%q is not a place for a volume", mount.MountPath)
		case paths[place]:
			c.fault(at+"mountPath", "%q appears twice", mount.MountPath)
		}
		paths[place] = true
		c.mountOptions(&mount, at)
	}
}

func (c checker) mountOptions(mount *corev1.VolumeMount, at string) {
	if mount.SubPath != "" && mount.SubPathExpr != "" {
		c.fault(at+"subPathExpr", "cannot be together with subPath")
	}
	for field, part := range map[string]string{"subPath": mount.SubPath, "subPathExpr": mount.SubPathExpr} {
		if path.IsAbs(part) || slices.Contains(strings.Split(part, "/"), "..") || strings.ContainsRune(part, 0) {
			c.fault(at+field, "%q is not a path within a volume", part)
		}
	}
	if mode := mount.RecursiveReadOnly; mode != nil {
		oneOf(c, at+"recursiveReadOnly", *mode, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible,
			corev1.RecursiveReadOnlyEnabled)
		if *mode != corev1.RecursiveReadOnlyDisabled {
			if !mount.ReadOnly {
				c.fault(at+"recursiveReadOnly", "is for a mount with readOnly")
			}
			if p := mount.MountPropagation; p != nil && *p != corev1.MountPropagationNone {
				c.fault(at+"recursiveReadOnly", "cannot be together with mountPropagation %s", *p)
			}
		}
	}
	seen := map[string]bool{}
	for i, option := range mount.BindMountOptions {
		field := fmt.Sprintf("%sbindMountOptions[%d]", at, i)
		oneOf(c, field, option, "noexec", "nodev", "nosuid")
		if seen[option] {
			c.fault(field, "%q appears twice", option)
		}
		seen[option] = true
	}
}
