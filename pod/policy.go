package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// restarts tells whether a container that has ended with code is started again:
// by the first of its rules that matches, else by its own policy, else by the
// pod's. An initial one that succeeded is done.
func restarts(pod *corev1.Pod, kind kind, spec *corev1.Container, code int32) bool {
	policy := pod.Spec.RestartPolicy
	switch {
	case kind == sidecar:
		return true
	case kind == ephemeral, kind == initial && code == 0:
		return false
	case spec.RestartPolicy != nil:
		for _, rule := range spec.RestartPolicyRules {
			if matchesExit(rule.ExitCodes, code) {
				return rule.Action == corev1.ContainerRestartRuleActionRestart
			}
		}
		policy = corev1.RestartPolicy(*spec.RestartPolicy)
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

// wants tells whether c is to be started, if not now then when its turn comes.
func (r *run) wants(c *container) bool {
	if r.running(c) {
		return false
	}
	if c.outgoing() {
		return true // its end was not its own
	}
	code, ended := r.outcome(c)
	switch c.kind {
	case sidecar:
		return true
	case ephemeral:
		return !ended
	case initial:
		if r.initialised() {
			return false
		}
		// A machine that is new is initialised anew.
		if !ended || code == 0 && !r.begun(c) {
			return true
		}
	case regular:
		if !ended {
			return !r.spent()
		}
	}
	return restarts(r.pod, c.kind, c.spec, code)
}

// finished tells whether the start may go on to what comes after c, which is
// an initial container or a sidecar.
func (r *run) finished(c *container) bool {
	if c.kind == sidecar {
		return r.started(c)
	}
	code, ended := r.outcome(c)
	return ended && code == 0 && r.begun(c)
}

// initialised tells whether the sandbox has seen all initial containers end and
// all sidecars start: from then on it stays initialised.
func (r *run) initialised() bool {
	inits := r.of(initial, sidecar)
	if len(inits) == 0 || slices.ContainsFunc(r.of(regular), r.begun) {
		return true
	}
	return !slices.ContainsFunc(inits, func(c *container) bool { return !r.finished(c) })
}

// next are the containers that are to run now and do not, in the order in which
// they are started. A sidecar that falls while later ones are being initialised
// is started again beside them.
func (r *run) next() []*container {
	var out []*container
	if !r.initialised() {
		inits := r.of(initial, sidecar)
		for i, c := range inits {
			if r.finished(c) {
				continue
			}
			if r.wants(c) {
				out = append(out, c)
			}
			if !slices.ContainsFunc(inits[i+1:], r.begun) {
				break
			}
		}
	} else {
		for _, c := range r.of(sidecar, regular) {
			if r.wants(c) {
				out = append(out, c)
			}
		}
	}
	for _, c := range r.of(ephemeral) {
		if r.wants(c) {
			out = append(out, c)
		}
	}
	return out
}

// over tells whether the pod has run to its end: an initial container has failed
// for good, or no regular one has anything left to do.
func (r *run) over() bool {
	for _, c := range r.of(initial) {
		if code, ended := r.outcome(c); ended && code != 0 && !restarts(r.pod, c.kind, c.spec, code) {
			return true
		}
	}
	for _, c := range r.of(regular) {
		if r.running(c) || r.wants(c) {
			return false
		}
	}
	return true
}

// spent tells whether a pod that is never restarted has lost its machine: what
// has not been started by then is not started any more.
func (r *run) spent() bool {
	if r.sandbox == nil || r.ready() || r.pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return false
	}
	return slices.ContainsFunc(r.containers, func(c *container) bool { return c.newest != nil })
}
