package pods

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The annotations by which kubelets tell static pods and their mirrors from others.
const (
	SourceAnnotation = "kubernetes.io/config.source"
	HashAnnotation   = "kubernetes.io/config.hash"
	SeenAnnotation   = "kubernetes.io/config.seen"
)

// staticUID is how long the UID of a static pod is: a hash in hexadecimal.
const staticUID = 32

// Static tells whether a UID is that of a static pod, a hash without hyphens. An API server gives its
// pods UUIDs, and lets nobody choose them.
func Static(uid types.UID) bool { return len(uid) == staticUID && !strings.Contains(string(uid), "-") }

// MirrorOf is the UID of the static pod that a pod of an API server shows, empty for one that is no mirror. A
// mirror that names no static pod is that of none, "-".
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
