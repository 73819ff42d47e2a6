package podspec

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AnnotationBackoffLimit is the annotation of a Job's pod that says how often what
// fails in it is tried again.
const AnnotationBackoffLimit = "batch.bulkhead.io/backoff-limit"

// BackoffLimit is how often what fails in the pod is tried again, if it is a
// Job's: with either of the policies that a Job's pod may have.
func BackoffLimit(pod *corev1.Pod) (limit int32, limited bool) {
	n, err := strconv.ParseInt(pod.Annotations[AnnotationBackoffLimit], 10, 32)
	return int32(n), err == nil && n >= 0
}

// The annotations of a Job's pod that waits for its turn, as the pods of one owner do.
const (
	// AnnotationParallelism says how many of the Job's pods run at once.
	AnnotationParallelism = "batch.bulkhead.io/parallelism"
	// AnnotationJobDeadline is the Job's activeDeadlineSeconds.
	AnnotationJobDeadline = "batch.bulkhead.io/active-deadline-seconds"
)

// Parallelism is how many of the pods with the pod's owner run at once; limited is
// false for a pod that need not wait for others.
func Parallelism(pod *corev1.Pod) (n int, limited bool) {
	n, err := strconv.Atoi(pod.Annotations[AnnotationParallelism])
	return n, err == nil && n > 0 && Owner(pod) != ""
}

// Owner identifies the workload that the pod is of, empty for none.
func Owner(pod *corev1.Pod) types.UID {
	if len(pod.OwnerReferences) == 0 {
		return ""
	}
	return pod.OwnerReferences[0].UID
}

// JobDeadline is how long the Job of a pod may take that waits for its turn.
func JobDeadline(pod *corev1.Pod) (limit time.Duration, limited bool) {
	n, err := strconv.ParseInt(pod.Annotations[AnnotationJobDeadline], 10, 32)
	return time.Duration(n) * time.Second, err == nil && n > 0
}
