package control

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kubelets mark static pods and their mirror pods with these annotations.
const (
	SourceAnnotation = "kubernetes.io/config.source"
	HashAnnotation   = "kubernetes.io/config.hash"
	SeenAnnotation   = "kubernetes.io/config.seen"
)

// staticUID is the length of a static pod's UID, a hash in hexadecimal.
const staticUID = 32

// Static reports whether a UID belongs to a static pod: a hash without hyphens. An API server assigns UUIDs, and
// clients cannot choose them.
func Static(uid types.UID) bool { return len(uid) == staticUID && !strings.Contains(string(uid), "-") }

// MirrorOf returns the UID of the static pod that a mirror pod shows. It returns "" if the pod is not a mirror, and "-"
// if the mirror names no static pod.
func MirrorOf(pod *corev1.Pod) types.UID {
	hash, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case !mirror:
		return ""
	case !Static(types.UID(hash)):
		return "-"
	}
	return types.UID(hash)
}
