package objects

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// references returns the objects that a pod refers to, each once.
func references(pod *corev1.Pod) (out []key) {
	out = append(out, serviceKeys(pod)...)
	add := func(kind, name string) {
		k := key{kind, pod.Namespace, name}
		if name != "" && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	if name := pod.Spec.RuntimeClassName; name != nil && *name != "" {
		out = append(out, key{class, "", *name})
	}
	for _, ref := range pod.Spec.ImagePullSecrets {
		add(secret, ref.Name)
	}
	for i := range pod.Spec.Volumes {
		source := &pod.Spec.Volumes[i].VolumeSource
		if source.ConfigMap != nil {
			add(configMap, source.ConfigMap.Name)
		}
		if source.Secret != nil {
			add(secret, source.Secret.SecretName)
		}
		if source.Projected == nil {
			continue
		}
		for _, one := range source.Projected.Sources {
			if one.ConfigMap != nil {
				add(configMap, one.ConfigMap.Name)
			}
			if one.Secret != nil {
				add(secret, one.Secret.Name)
			}
		}
	}
	for c := range podspec.Every(&pod.Spec) {
		environment(c.Env, c.EnvFrom, add)
	}
	return out
}

// environment calls add with the objects that a container's variables come from.
func environment(env []corev1.EnvVar, from []corev1.EnvFromSource, add func(kind, name string)) {
	for _, one := range from {
		if one.ConfigMapRef != nil {
			add(configMap, one.ConfigMapRef.Name)
		}
		if one.SecretRef != nil {
			add(secret, one.SecretRef.Name)
		}
	}
	for _, one := range env {
		if one.ValueFrom == nil {
			continue
		}
		if ref := one.ValueFrom.ConfigMapKeyRef; ref != nil {
			add(configMap, ref.Name)
		}
		if ref := one.ValueFrom.SecretKeyRef; ref != nil {
			add(secret, ref.Name)
		}
	}
}
