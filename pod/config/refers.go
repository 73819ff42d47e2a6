package config

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// RefersToResources reports whether a container or a volume of the pod refers to a resource of a container.
func RefersToResources(pod *corev1.Pod) bool {
	inEnv := func(env corev1.EnvVar) bool { return env.ValueFrom != nil && env.ValueFrom.ResourceFieldRef != nil }
	if podspec.Any(&pod.Spec, func(c *corev1.Container) bool { return slices.ContainsFunc(c.Env, inEnv) }) {
		return true
	}
	inFile := func(file corev1.DownwardAPIVolumeFile) bool { return file.ResourceFieldRef != nil }
	for i := range pod.Spec.Volumes {
		source := &pod.Spec.Volumes[i].VolumeSource
		if source.DownwardAPI != nil && slices.ContainsFunc(source.DownwardAPI.Items, inFile) {
			return true
		}
		if source.Projected == nil {
			continue
		}
		for _, one := range source.Projected.Sources {
			if one.DownwardAPI != nil && slices.ContainsFunc(one.DownwardAPI.Items, inFile) {
				return true
			}
		}
	}
	return false
}
