package podspec

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AnnotationBackoffLimit is the annotation for a Job's backoff limit on its pods.
const AnnotationBackoffLimit = "batch.bulkhead.io/backoff-limit"

// BackoffLimit returns how often failed containers of a Job's pod are retried. limited is false for other pods. It
// applies with both restart policies that a Job's pod may have.
func BackoffLimit(pod *corev1.Pod) (limit int32, limited bool) {
	n, err := strconv.ParseInt(pod.Annotations[AnnotationBackoffLimit], 10, 32)
	return int32(n), err == nil && n >= 0
}

// The annotations of a Job's pod that waits for its turn among the pods of its owner.
const (
	// AnnotationParallelism is the number of the Job's pods that run at a time.
	AnnotationParallelism = "batch.bulkhead.io/parallelism"
	// AnnotationJobDeadline is the Job's activeDeadlineSeconds.
	AnnotationJobDeadline = "batch.bulkhead.io/active-deadline-seconds"
)

// Parallelism returns how many pods of the pod's owner run at a time. limited is false for a pod that need not wait.
func Parallelism(pod *corev1.Pod) (n int, limited bool) {
	n, err := strconv.Atoi(pod.Annotations[AnnotationParallelism])
	return n, err == nil && n > 0 && Owner(pod) != ""
}

// Owner returns the UID of the pod's workload, empty for none.
func Owner(pod *corev1.Pod) types.UID {
	if len(pod.OwnerReferences) == 0 {
		return ""
	}
	return pod.OwnerReferences[0].UID
}

// JobDeadline returns the deadline of the Job of a pod that waits for its turn.
func JobDeadline(pod *corev1.Pod) (limit time.Duration, limited bool) {
	n, err := strconv.ParseInt(pod.Annotations[AnnotationJobDeadline], 10, 32)
	return time.Duration(n) * time.Second, err == nil && n > 0
}
