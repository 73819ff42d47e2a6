package podspec

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Restarts tells whether a container that has ended with code is started again:
// by the first of its rules that matches, else by its own policy, else by the
// pod's. An initial one that succeeded is done. before is how often initial and
// regular containers of the pod were started again, for its BackoffLimit.
func Restarts(pod *corev1.Pod, kind Kind, spec *corev1.Container, code, before int32) bool {
	policy := pod.Spec.RestartPolicy
	switch {
	case kind == Sidecar:
		return true
	case kind == Ephemeral, kind == Initial && code == 0:
		return false
	case spec.RestartPolicy != nil:
		for _, rule := range spec.RestartPolicyRules {
			if matchesExit(rule.ExitCodes, code) {
				return rule.Action == corev1.ContainerRestartRuleActionRestart
			}
		}
		policy = corev1.RestartPolicy(*spec.RestartPolicy)
	}
	if limit, limited := BackoffLimit(pod); limited && spec.RestartPolicy == nil {
		return code != 0 && before < limit
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	}
	return true
}

// AnnotationBackoffLimit is the annotation of a Job's pod that says how often what
// fails in it is tried again.
const AnnotationBackoffLimit = "batch.bulkhead.io/backoff-limit"

// BackoffLimit is how often what fails in the pod is tried again, if it is a
// Job's: with either of the policies that a Job's pod may have.
func BackoffLimit(pod *corev1.Pod) (limit int32, limited bool) {
	n, err := strconv.ParseInt(pod.Annotations[AnnotationBackoffLimit], 10, 32)
	return int32(n), err == nil && n >= 0
}

func matchesExit(on *corev1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if on == nil {
		return false
	}
	among := slices.Contains(on.Values, code)
	switch on.Operator {
	case corev1.ContainerRestartRuleOnExitCodesOpIn:
		return among
	case corev1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !among
	}
	return false
}
