package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/internal/testpod"
)

// codes are the exit codes that each row of the table tells about.
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
		{"always", "Always", Regular, "", nil, "yyyyy"},
		{"on failure", "OnFailure", Regular, "", nil, "nyyyy"},
		{"never", "Never", Regular, "", nil, "nnnnn"},
		{"own always in a pod of never", "Never", Regular, "Always", nil, "yyyyy"},
		{"own always in a pod of on failure", "OnFailure", Regular, "Always", nil, "yyyyy"},
		{"own on failure in a pod of always", "Always", Regular, "OnFailure", nil, "nyyyy"},
		{"own on failure in a pod of never", "Never", Regular, "OnFailure", nil, "nyyyy"},
		{"own never in a pod of always", "Always", Regular, "Never", nil, "nnnnn"},
		{"own never in a pod of on failure", "OnFailure", Regular, "Never", nil, "nnnnn"},
		{"in, over never", "Always", Regular, "Never", rules{testpod.RestartOn("In", 42)}, "nnynn"},
		{"in of several, over never", "Never", Regular, "Never", rules{testpod.RestartOn("In", 42, 137)}, "nnyyn"},
		{"in of success, over never", "Never", Regular, "Never", rules{testpod.RestartOn("In", 0)}, "ynnnn"},
		{"not in, over never", "Never", Regular, "Never", rules{testpod.RestartOn("NotIn", 42)}, "yynyy"},
		{"not in of success, over never", "Never", Regular, "Never", rules{testpod.RestartOn("NotIn", 0)}, "nyyyy"},
		{"in, over on failure", "Never", Regular, "OnFailure", rules{testpod.RestartOn("In", 0)}, "yyyyy"},
		{"in, over always", "Never", Regular, "Always", rules{testpod.RestartOn("In", 42)}, "yyyyy"},
		{"the second of two", "Never", Regular, "Never", rules{testpod.RestartOn("In", 1), testpod.RestartOn("In", 42)}, "nyynn"},
		{"no rule matches", "Never", Regular, "Never", rules{testpod.RestartOn("In", 2), testpod.RestartOn("In", 3)}, "nnnnn"},
		{"nothing in", "Never", Regular, "Never", rules{testpod.RestartOn("In")}, "nnnnn"},
		{"not in nothing", "Never", Regular, "Never", rules{testpod.RestartOn("NotIn")}, "yyyyy"},
		{"an unknown operator", "Never", Regular, "Never", rules{testpod.RestartOn("Like", 42)}, "nnnnn"},
		{"an unknown action", "Never", Regular, "Always", rules{{Action: "Sleep", ExitCodes: testpod.RestartOn("In", 42).ExitCodes}}, "yynyy"},
		{"no exit codes", "Never", Regular, "Never", rules{{Action: "Restart"}}, "nnnnn"},
		{"initial in a pod of always", "Always", Initial, "", nil, "nyyyy"},
		{"initial in a pod of on failure", "OnFailure", Initial, "", nil, "nyyyy"},
		{"initial in a pod of never", "Never", Initial, "", nil, "nnnnn"},
		{"initial, own on failure", "Never", Initial, "OnFailure", nil, "nyyyy"},
		{"initial, own never", "Always", Initial, "Never", nil, "nnnnn"},
		{"initial, in", "Never", Initial, "Never", rules{testpod.RestartOn("In", 42)}, "nnynn"},
		{"initial that succeeds is done", "Always", Initial, "OnFailure", rules{testpod.RestartOn("In", 0)}, "nyyyy"},
		{"sidecar in a pod of never", "Never", Sidecar, "Always", nil, "yyyyy"},
		{"ephemeral in a pod of always", "Always", Ephemeral, "", nil, "nnnnn"},
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
				t.Errorf("of %v %s, want %s", exitCodes, got, test.want)
			}
		})
	}
}

// TestBackoffLimit: what fails in a Job's pod is tried again so often, whatever
// the pod's policy.
func TestBackoffLimit(t *testing.T) {
	for _, test := range []struct {
		limit  string
		policy corev1.RestartPolicy
		kind   Kind
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
		{limit: "", policy: "OnFailure", code: 1, before: 9, want: true},
		{limit: "many", policy: "Never", code: 1, before: 0},
		{limit: "-1", policy: "Never", code: 1, before: 0},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: test.policy}}
		pod.Annotations = map[string]string{AnnotationBackoffLimit: test.limit}
		if got := Restarts(pod, test.kind, &corev1.Container{}, test.code, test.before); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}
