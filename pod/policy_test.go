package pod

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// rule is a restart rule of one operator.
func rule(operator string, values ...int32) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOperator(operator), Values: values},
	}
}

// codes are the exit codes that each row of the table tells about.
var exitCodes = []int32{0, 1, 42, 137, 143}

func TestRestarts(t *testing.T) {
	type rules = []corev1.ContainerRestartRule
	tests := []struct {
		name string
		pod  corev1.RestartPolicy
		kind kind
		own  corev1.ContainerRestartPolicy
		when rules
		want string // "y" or "n" for each exit code
	}{
		{"always", "Always", regular, "", nil, "yyyyy"},
		{"on failure", "OnFailure", regular, "", nil, "nyyyy"},
		{"never", "Never", regular, "", nil, "nnnnn"},
		{"own always in a pod of never", "Never", regular, "Always", nil, "yyyyy"},
		{"own always in a pod of on failure", "OnFailure", regular, "Always", nil, "yyyyy"},
		{"own on failure in a pod of always", "Always", regular, "OnFailure", nil, "nyyyy"},
		{"own on failure in a pod of never", "Never", regular, "OnFailure", nil, "nyyyy"},
		{"own never in a pod of always", "Always", regular, "Never", nil, "nnnnn"},
		{"own never in a pod of on failure", "OnFailure", regular, "Never", nil, "nnnnn"},
		{"in, over never", "Always", regular, "Never", rules{rule("In", 42)}, "nnynn"},
		{"in of several, over never", "Never", regular, "Never", rules{rule("In", 42, 137)}, "nnyyn"},
		{"in of success, over never", "Never", regular, "Never", rules{rule("In", 0)}, "ynnnn"},
		{"not in, over never", "Never", regular, "Never", rules{rule("NotIn", 42)}, "yynyy"},
		{"not in of success, over never", "Never", regular, "Never", rules{rule("NotIn", 0)}, "nyyyy"},
		{"in, over on failure", "Never", regular, "OnFailure", rules{rule("In", 0)}, "yyyyy"},
		{"in, over always", "Never", regular, "Always", rules{rule("In", 42)}, "yyyyy"},
		{"the second of two", "Never", regular, "Never", rules{rule("In", 1), rule("In", 42)}, "nyynn"},
		{"no rule matches", "Never", regular, "Never", rules{rule("In", 2), rule("In", 3)}, "nnnnn"},
		{"nothing in", "Never", regular, "Never", rules{rule("In")}, "nnnnn"},
		{"not in nothing", "Never", regular, "Never", rules{rule("NotIn")}, "yyyyy"},
		{"an unknown operator", "Never", regular, "Never", rules{rule("Like", 42)}, "nnnnn"},
		{"an unknown action", "Never", regular, "Always", rules{{Action: "Sleep", ExitCodes: rule("In", 42).ExitCodes}}, "yynyy"},
		{"no exit codes", "Never", regular, "Never", rules{{Action: "Restart"}}, "nnnnn"},
		{"initial in a pod of always", "Always", initial, "", nil, "nyyyy"},
		{"initial in a pod of on failure", "OnFailure", initial, "", nil, "nyyyy"},
		{"initial in a pod of never", "Never", initial, "", nil, "nnnnn"},
		{"initial, own on failure", "Never", initial, "OnFailure", nil, "nyyyy"},
		{"initial, own never", "Always", initial, "Never", nil, "nnnnn"},
		{"initial, in", "Never", initial, "Never", rules{rule("In", 42)}, "nnynn"},
		{"initial that succeeds is done", "Always", initial, "OnFailure", rules{rule("In", 0)}, "nyyyy"},
		{"sidecar in a pod of never", "Never", sidecar, "Always", nil, "yyyyy"},
		{"ephemeral in a pod of always", "Always", ephemeral, "", nil, "nnnnn"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			spec := corev1.Container{RestartPolicyRules: test.when}
			if test.own != "" {
				spec.RestartPolicy = &test.own
			}
			got := ""
			for _, code := range exitCodes {
				if restarts(&corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: test.pod}}, test.kind, &spec, code) {
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

// TestBackoff follows one thing through its ends: each at a time after the start
// of its run.
func TestBackoff(t *testing.T) {
	second, minute := time.Second, time.Minute
	tests := []struct {
		name string
		runs []time.Duration // how long each run lasts
		want []time.Duration // the delays after them
	}{
		{"at once, then doubled to five minutes", []time.Duration{1, 1, 1, 1, 1, 1, 1, 1, 1},
			[]time.Duration{0, 10 * second, 20 * second, 40 * second, 80 * second, 160 * second, 300 * second, 300 * second, 300 * second}},
		{"a run of ten minutes changes nothing", []time.Duration{1, 1, 10 * minute, 1},
			[]time.Duration{0, 10 * second, 20 * second, 40 * second}},
		{"a longer one begins anew", []time.Duration{1, 1, 10*minute + 1, 1, 1},
			[]time.Duration{0, 10 * second, 0, 10 * second, 20 * second}},
		{"after the longest delay too", []time.Duration{1, 1, 1, 1, 1, 1, 1, 6 * minute, 1, 11 * minute, 1},
			[]time.Duration{0, 10 * second, 20 * second, 40 * second, 80 * second, 160 * second, 300 * second, 300 * second, 300 * second, 0, 10 * second}},
		{"long runs only", []time.Duration{time.Hour, time.Hour, time.Hour}, []time.Duration{0, 0, 0}},
		{"five minutes at each run", []time.Duration{5 * minute, 5 * minute, 5 * minute, 5 * minute},
			[]time.Duration{0, 10 * second, 20 * second, 40 * second}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b backoff
			var got []time.Duration
			now := time.Unix(1_000_000, 0)
			for _, lasts := range test.runs {
				ended := now.Add(lasts)
				now = b.until(ended)
				got = append(got, now.Sub(ended))
				b.next(ended, now)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestContainersOf(t *testing.T) {
	pod := onePod("Never", "a", "b")
	always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever
	pod.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}, {Name: "j", RestartPolicy: &never}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}, TargetContainerName: "a"}}
	got := ""
	for _, c := range containersOf(pod) {
		got += fmt.Sprintf("%s:%d%s ", c.spec.Name, c.kind, c.target)
	}
	if want := "i:1 s:2 j:1 a:0 b:0 e:3a "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
