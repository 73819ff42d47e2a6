package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Restarts reports whether a container that ended with code is restarted. The first matching rule decides, else the
// container's own policy, else the pod's. A successful init container is done. before is the number of restarts of
// the pod's initial and regular containers, for its BackoffLimit.
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
