package volume

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NameOf returns the named volume of a claim. Names of claims and namespaces have no underscore, so the result is
// unique. A pod made for a user's volume may use a name that no claim can have, which is kept as it is.
func NameOf(namespace, claim string) string {
	if namespace == "" || namespace == metav1.NamespaceDefault {
		return claim
	}
	return namespace + "_" + claim
}

// Names returns the named volumes of a pod, without duplicates, in the order of the pod's volumes.
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
