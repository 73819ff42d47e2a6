package manifests

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// refersTo returns the kind of an object that a pod refers to, or an empty string.
func refersTo(pod *corev1.Pod) string {
	spec := &pod.Spec
	switch {
	case spec.ServiceAccountName != "" || spec.DeprecatedServiceAccount != "":
		return "serviceaccounts"
	case len(spec.ImagePullSecrets) > 0:
		return "secrets"
	case len(spec.ResourceClaims) > 0:
		return "resourceclaims"
	}
	for c := range podspec.All(spec) {
		if what := variables(c); what != "" {
			return what
		}
	}
	for i := range spec.Volumes {
		if what := source(&spec.Volumes[i].VolumeSource); what != "" {
			return what
		}
	}
	return ""
}

// variables returns the kind of the objects that a container's variables refer to.
func variables(c *corev1.Container) string {
	for _, from := range c.EnvFrom {
		switch {
		case from.SecretRef != nil:
			return "secrets"
		case from.ConfigMapRef != nil:
			return "configmaps"
		}
	}
	for _, one := range c.Env {
		switch {
		case one.ValueFrom == nil:
		case one.ValueFrom.SecretKeyRef != nil:
			return "secrets"
		case one.ValueFrom.ConfigMapKeyRef != nil:
			return "configmaps"
		}
	}
	return ""
}

// source returns the kind of the objects that a volume refers to. Admission rejects unsupported kinds.
func source(v *corev1.VolumeSource) string {
	switch {
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)"
	case v.Secret != nil:
		return "secrets (via secret volumes)"
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)"
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims"
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)"
	case v.Projected == nil:
		return ""
	}
	for _, one := range v.Projected.Sources {
		switch {
		case one.ConfigMap != nil:
			return "configmaps (via projected volumes)"
		case one.Secret != nil:
			return "secrets (via projected volumes)"
		case one.ServiceAccountToken != nil:
			return "serviceaccounts (via projected volumes)"
		case one.ClusterTrustBundle != nil:
			return "clustertrustbundles"
		case one.PodCertificate != nil:
			return "podcertificates"
		}
	}
	return ""
}
