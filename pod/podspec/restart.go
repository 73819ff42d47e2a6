package podspec

import (
	"slices"

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
