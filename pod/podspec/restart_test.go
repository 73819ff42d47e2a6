package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

// exitCodes are the exit codes for each row of the table.
var exitCodes = []int32{0, 1, 42, 137, 143}

func TestRestarts(t *testing.T) {
	type rules = []corev1.ContainerRestartRule
	tests := []struct {
		name string
		pod  corev1.RestartPolicy
		kind Kind
		own  corev1.ContainerRestartPolicy
		when rules
		want string // "y" or "n" for each exit code
	}{
		{name: "always", pod: "Always", kind: Regular, want: "yyyyy"},
		{name: "on failure", pod: "OnFailure", kind: Regular, want: "nyyyy"},
		{name: "never", pod: "Never", kind: Regular, want: "nnnnn"},
		{name: "own always in a pod of never", pod: "Never", kind: Regular, own: "Always", want: "yyyyy"},
		{name: "own always in a pod of on failure", pod: "OnFailure", kind: Regular, own: "Always", want: "yyyyy"},
		{name: "own on failure in a pod of always", pod: "Always", kind: Regular, own: "OnFailure", want: "nyyyy"},
		{name: "own on failure in a pod of never", pod: "Never", kind: Regular, own: "OnFailure", want: "nyyyy"},
		{name: "own never in a pod of always", pod: "Always", kind: Regular, own: "Never", want: "nnnnn"},
		{name: "own never in a pod of on failure", pod: "OnFailure", kind: Regular, own: "Never", want: "nnnnn"},
		{name: "in, over never", pod: "Always", kind: Regular, own: "Never", when: rules{testpod.RestartOn("In", 42)}, want: "nnynn"},
		{name: "in of several, over never", pod: "Never", kind: Regular, own: "Never", when: rules{testpod.RestartOn("In", 42, 137)},
			want: "nnyyn"},
		{name: "in of success, over never", pod: "Never", kind: Regular, own: "Never", when: rules{testpod.RestartOn("In", 0)}, want: "ynnnn"},
		{name: "not in, over never", pod: "Never", kind: Regular, own: "Never", when: rules{testpod.RestartOn("NotIn", 42)}, want: "yynyy"},
		{name: "not in of success, over never", pod: "Never", kind: Regular, own: "Never", when: rules{testpod.RestartOn("NotIn", 0)},
			want: "nyyyy"},
		{name: "in, over on failure", pod: "Never", kind: Regular, own: "OnFailure", when: rules{testpod.RestartOn("In", 0)}, want: "yyyyy"},
		{name: "in, over always", pod: "Never", kind: Regular, own: "Always", when: rules{testpod.RestartOn("In", 42)}, want: "yyyyy"},
		{name: "the second of two", pod: "Never", kind: Regular, own: "Never",
			when: rules{testpod.RestartOn("In", 1), testpod.RestartOn("In", 42)}, want: "nyynn"},
		{name: "no rule matches", pod: "Never", kind: Regular, own: "Never",
			when: rules{testpod.RestartOn("In", 2), testpod.RestartOn("In", 3)}, want: "nnnnn"},
		{name: "nothing in", pod: "Never", kind: Regular, own: "Never", when: rules{testpod.RestartOn("In")}, want: "nnnnn"},
		{name: "not in nothing", pod: "Never", kind: Regular, own: "Never", when: rules{testpod.RestartOn("NotIn")}, want: "yyyyy"},
		{name: "an unknown operator", pod: "Never", kind: Regular, own: "Never", when: rules{testpod.RestartOn("Like", 42)}, want: "nnnnn"},
		{name: "an unknown action", pod: "Never", kind: Regular, own: "Always",
			when: rules{{Action: "Sleep", ExitCodes: testpod.RestartOn("In", 42).ExitCodes}}, want: "yynyy"},
		{name: "no exit codes", pod: "Never", kind: Regular, own: "Never", when: rules{{Action: "Restart"}}, want: "nnnnn"},
		{name: "initial in a pod of always", pod: "Always", kind: Initial, want: "nyyyy"},
		{name: "initial in a pod of on failure", pod: "OnFailure", kind: Initial, want: "nyyyy"},
		{name: "initial in a pod of never", pod: "Never", kind: Initial, want: "nnnnn"},
		{name: "initial, own on failure", pod: "Never", kind: Initial, own: "OnFailure", want: "nyyyy"},
		{name: "initial, own never", pod: "Always", kind: Initial, own: "Never", want: "nnnnn"},
		{name: "initial, in", pod: "Never", kind: Initial, own: "Never", when: rules{testpod.RestartOn("In", 42)}, want: "nnynn"},
		{name: "initial that succeeds is done", pod: "Always", kind: Initial, own: "OnFailure", when: rules{testpod.RestartOn("In", 0)},
			want: "nyyyy"},
		{name: "sidecar in a pod of never", pod: "Never", kind: Sidecar, own: "Always", want: "yyyyy"},
		{name: "ephemeral in a pod of always", pod: "Always", kind: Ephemeral, want: "nnnnn"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			spec := corev1.Container{RestartPolicyRules: test.when}
			if test.own != "" {
				spec.RestartPolicy = &test.own
			}
			got := ""
			for _, code := range exitCodes {
				if Restarts(&corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: test.pod}}, test.kind, &spec, code, 0) {
					got += "y"
				} else {
					got += "n"
				}
			}
			if got != test.want {
				t.Errorf("exit codes %v: got %s, want %s", exitCodes, got, test.want)
			}
		})
	}
}

// TestBackoffLimit: failed containers of a Job's pod are retried up to the limit, with any policy of the pod.
func TestBackoffLimit(t *testing.T) {
	for _, test := range []struct {
		limit  string
		policy corev1.RestartPolicy
		kind   Kind
		own    corev1.ContainerRestartPolicy // the container's; empty for none
		before int32
		code   int32
		want   bool
	}{
		{limit: "2", policy: "Never", code: 1, before: 0, want: true},
		{limit: "2", policy: "Never", code: 1, before: 1, want: true},
		{limit: "2", policy: "Never", code: 1, before: 2},
		{limit: "2", policy: "OnFailure", code: 1, before: 1, want: true},
		{limit: "2", policy: "OnFailure", code: 1, before: 2},
		{limit: "2", policy: "OnFailure", kind: Initial, code: 1, before: 2},
		{limit: "2", policy: "OnFailure", kind: Initial, code: 1, before: 1, want: true},
		{limit: "2", policy: "OnFailure", kind: Sidecar, code: 1, before: 9, want: true},
		{limit: "2", policy: "OnFailure", code: 0, before: 0},
		{limit: "0", policy: "OnFailure", code: 1, before: 0},
		{limit: "2", policy: "Never", own: corev1.ContainerRestartPolicyNever, code: 1},
		{limit: "2", policy: "Never", own: corev1.ContainerRestartPolicyOnFailure, code: 1, before: 9, want: true},
		{limit: "", policy: "OnFailure", code: 1, before: 9, want: true},
		{limit: "many", policy: "Never", code: 1, before: 0},
		{limit: "-1", policy: "Never", code: 1, before: 0},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: test.policy}}
		pod.Annotations = map[string]string{AnnotationBackoffLimit: test.limit}
		container := &corev1.Container{}
		if test.own != "" {
			container.RestartPolicy = &test.own
		}
		if got := Restarts(pod, test.kind, container, test.code, test.before); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}
