package volume

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NameOf is the named volume that a claim stands for. A claim's name has no underscore, nor
// has a namespace's, so no two claims stand for one. What is no claim's name (a pod that is
// made for a volume of the user's) is taken as it is.
func NameOf(namespace, claim string) string {
	if namespace == "" || namespace == metav1.NamespaceDefault {
		return claim
	}
	return namespace + "_" + claim
}

// Names are the named volumes of a pod, each once, in the order of the pod's volumes.
func Names(pod *corev1.Pod) (names []string) {
	seen := map[string]bool{}
	for i := range pod.Spec.Volumes {
		claim := pod.Spec.Volumes[i].PersistentVolumeClaim
		if claim == nil {
			continue
		}
		if name := NameOf(pod.Namespace, claim.ClaimName); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}
