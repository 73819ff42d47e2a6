package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
)

// The kubelet's labels and annotations. Sandboxes and containers of a pod are found by them.
const (
	labelName      = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	LabelUID       = "io.kubernetes.pod.uid"
	LabelContainer = "io.kubernetes.container.name"

	annotationHash          = "io.kubernetes.container.hash"
	AnnotationRestarts      = "io.kubernetes.container.restartCount"
	annotationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	annotationGrace         = "io.kubernetes.pod.terminationGracePeriod"
)

// sandboxLabels returns the pod's labels, overridden by the kubelet's.
func sandboxLabels(pod *corev1.Pod) map[string]string {
	labels := maps.Clone(pod.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[labelName], labels[labelNamespace], labels[LabelUID] = pod.Name, pod.Namespace, string(pod.UID)
	return labels
}

func containerLabels(pod *corev1.Pod, container *corev1.Container) map[string]string {
	return map[string]string{
		labelName:      pod.Name,
		labelNamespace: pod.Namespace,
		LabelUID:       string(pod.UID),
		LabelContainer: container.Name,
	}
}

func containerAnnotations(pod *corev1.Pod, container *corev1.Container, restarts int32) map[string]string {
	out := map[string]string{
		annotationHash:          hash(container),
		AnnotationRestarts:      strconv.Itoa(int(restarts)),
		annotationMessagePath:   container.TerminationMessagePath,
		annotationMessagePolicy: string(container.TerminationMessagePolicy),
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		out[annotationGrace] = strconv.FormatInt(*grace, 10)
	}
	return out
}

// hashKind is the prefix of hashes over the fields with changes that restart a container, like the kubelet's hashes.
// Earlier hashes covered the whole specification, and are ignored.
const hashKind = "image-"

// hash identifies the fields of a container's specification with changes that restart it.
func hash(container *corev1.Container) string {
	sum := sha256.Sum256([]byte(container.Name + "\x00" + container.Image))
	return hashKind + hex.EncodeToString(sum[:4])
}

// Outdated reports whether a container with these annotations was made from another image than in this specification.
// Annotations without a usable hash are not outdated.
func Outdated(annotations map[string]string, container *corev1.Container) bool {
	made := annotations[annotationHash]
	return strings.HasPrefix(made, hashKind) && made != hash(container)
}

// refuseInternal rejects annotations of users that are reserved for the engine.
func refuseInternal(user map[string]string) error {
	for key := range user {
		if annotations.Internal(key) {
			return fmt.Errorf("annotation %q: the prefix %s is reserved for the engine", key, strings.TrimSuffix(annotations.Prefix, "/"))
		}
	}
	return nil
}
