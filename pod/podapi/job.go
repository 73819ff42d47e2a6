package podapi

import (
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// backoffLimit is the API server's default.
const backoffLimit = 6

// completionIndex is the variable with the pod's index in the containers of an indexed Job.
const completionIndex = "JOB_COMPLETION_INDEX"

// job reads a Job. It makes all of the Job's pods; those beyond its parallelism wait for their turn. Failed containers
// are retried in their pod.
func (d *decoder) job(text []byte, prefix string) {
	object := &batchv1.Job{}
	d.workload(text, prefix, object, func() workload {
		spec := &object.Spec
		setDefault(&spec.BackoffLimit, new(int32(backoffLimit)))
		count, field := spec.Completions, "spec.completions"
		if count == nil {
			count, field = spec.Parallelism, "spec.parallelism" // each pod knows when there is no more work
		}
		indexed := spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion
		return workload{
			meta: &object.ObjectMeta, template: &spec.Template, replicas: count, field: field, ordinal: indexed,
			policies: []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever},
			check:    func(c checker) { d.checkJob(c, spec, prefix) },
			finish: func(pod *corev1.Pod, number int32) {
				label(pod, batchv1.JobNameLabel, object.Name)
				label(pod, "job-name", object.Name) // its former name
				label(pod, batchv1.ControllerUidLabel, string(pod.OwnerReferences[0].UID))
				label(pod, "controller-uid", string(pod.OwnerReferences[0].UID)) // its former name
				annotate(pod, podspec.AnnotationBackoffLimit, fmt.Sprint(*spec.BackoffLimit))
				waits := spec.Completions != nil && *spec.Completions > parallel(spec)
				if waits {
					annotate(pod, podspec.AnnotationParallelism, fmt.Sprint(parallel(spec)))
				}
				if limit := spec.ActiveDeadlineSeconds; limit != nil {
					if waits {
						annotate(pod, podspec.AnnotationJobDeadline, fmt.Sprint(*limit))
					}
					if own := pod.Spec.ActiveDeadlineSeconds; own == nil || *own > *limit {
						pod.Spec.ActiveDeadlineSeconds = limit
					}
				}
				if indexed {
					setIndex(pod, number)
				}
			},
		}
	})
}

// checkJob reports the faults for which the API server refuses a Job, and refuses a Job that must not run yet.
func (d *decoder) checkJob(c checker, spec *batchv1.JobSpec, prefix string) {
	if *spec.BackoffLimit < 0 {
		c.fault("spec.backoffLimit", "%d is negative", *spec.BackoffLimit)
	}
	if limit := spec.ActiveDeadlineSeconds; limit != nil && *limit < 1 {
		c.fault("spec.activeDeadlineSeconds", "%d is not positive", *limit)
	}
	if n := parallel(spec); n < 1 {
		d.add(0, prefix+"spec.parallelism", errNotHonoured, fmt.Sprintf("%d is not honoured: a job starts immediately", n))
		return
	}
	if spec.Completions == nil && spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion {
		c.fault("spec.completions", "is required when completionMode is Indexed")
	}
}

// parallel returns how many of a Job's pods run at a time.
func parallel(spec *batchv1.JobSpec) int32 {
	if spec.Parallelism == nil {
		return 1
	}
	return *spec.Parallelism
}

// setIndex gives a pod of an indexed Job its index.
func setIndex(pod *corev1.Pod, number int32) {
	index := strconv.Itoa(int(number))
	named(pod)
	annotate(pod, batchv1.JobCompletionIndexAnnotation, index)
	label(pod, batchv1.JobCompletionIndexAnnotation, index)
	for c := range podspec.All(&pod.Spec) {
		if !slices.ContainsFunc(c.Env, func(env corev1.EnvVar) bool { return env.Name == completionIndex }) {
			c.Env = append(c.Env, corev1.EnvVar{Name: completionIndex, Value: index})
		}
	}
}

func annotate(pod *corev1.Pod, key, value string) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[key] = value
}
