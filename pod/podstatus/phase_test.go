package podstatus

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/internal/testpod"
)

// statusOfWord is a container's status in short: "run", "run-" (not started),
// "wait", "wait:N" and "end:N" with an exit code, and "-" for none.
func statusOfWord(name, word string) []corev1.ContainerStatus {
	kind, number, _ := strings.Cut(word, ":")
	code, _ := strconv.Atoi(number)
	ended := &corev1.ContainerStateTerminated{ExitCode: int32(code)}
	status := corev1.ContainerStatus{Name: name, Started: new(kind == "run")}
	switch kind {
	case "-":
		return nil
	case "run", "run-":
		status.State.Running = &corev1.ContainerStateRunning{}
		status.Ready = kind == "run"
	case "end":
		status.State.Terminated = ended
	case "wait":
		status.State.Waiting = &corev1.ContainerStateWaiting{}
		if number != "" {
			status.LastTerminationState.Terminated = ended
		}
	}
	return []corev1.ContainerStatus{status}
}

// podOf makes a pod and its status of words: "i=" an initial container, "s=" a
// sidecar, any other a regular one.
func podOf(policy corev1.RestartPolicy, words string) (*corev1.PodSpec, *corev1.PodStatus) {
	spec, status := &corev1.PodSpec{RestartPolicy: policy}, &corev1.PodStatus{}
	always := corev1.ContainerRestartPolicyAlways
	for i, word := range strings.Fields(words) {
		name := "c" + strconv.Itoa(i)
		kind, state, found := strings.Cut(word, "=")
		if !found {
			spec.Containers = append(spec.Containers, corev1.Container{Name: name})
			status.ContainerStatuses = append(status.ContainerStatuses, statusOfWord(name, word)...)
			continue
		}
		c := corev1.Container{Name: name}
		one := statusOfWord(name, state)
		if kind == "s" {
			c.RestartPolicy = &always
		} else if len(one) > 0 {
			one[0].Ready = state == "end:0"
		}
		spec.InitContainers = append(spec.InitContainers, c)
		status.InitContainerStatuses = append(status.InitContainerStatuses, one...)
	}
	return spec, status
}

func TestPhase(t *testing.T) {
	tests := []struct {
		words string
		// The phases under Always, OnFailure and Never, then those of a pod of
		// which nothing is started any more: P, R, S or F.
		want, terminal string
	}{
		{"wait", "PPP", "PPP"},
		{"-", "PPP", "PPP"},
		{"- -", "PPP", "PPP"},
		{"run", "RRR", "RRR"},
		{"run run", "RRR", "RRR"},
		{"run wait", "PPP", "PPP"},
		{"run -", "PPP", "PPP"},
		{"run end:0", "RRR", "RRR"},
		{"run end:1", "RRR", "RRR"},
		{"run wait:1", "RRR", "RRR"},
		{"end:0", "RSS", "SSS"},
		{"end:1", "RRF", "FFF"},
		{"end:0 end:0", "RSS", "SSS"},
		{"end:0 end:1", "RRF", "FFF"},
		{"end:1 end:1", "RRF", "FFF"},
		{"end:0 -", "PPP", "PPP"},
		{"end:0 wait", "PPP", "PPP"},
		{"wait:1", "RRR", "FFF"},
		{"wait:0", "RRR", "FFF"},
		{"end:0 wait:1", "RRR", "FFF"},
		// initial containers
		{"i=wait wait", "PPP", "PPP"},
		{"i=- wait", "PPP", "PPP"},
		{"i=run wait", "PPP", "PPP"},
		{"i=end:0 wait", "PPP", "PPP"},
		{"i=end:0 run", "RRR", "RRR"},
		{"i=end:0 end:0", "RSS", "SSS"},
		{"i=end:0 end:1", "RRF", "FFF"},
		{"i=end:1 wait", "PPF", "PPF"},
		{"i=wait:1 wait", "PPP", "PPP"},
		{"i=end:0 i=wait wait", "PPP", "PPP"},
		{"i=end:0 i=run wait", "PPP", "PPP"},
		{"i=end:0 i=end:1 wait", "PPF", "PPF"},
		{"i=end:1 i=wait wait", "PPF", "PPF"},
		{"i=end:0 i=end:0 run", "RRR", "RRR"},
		{"i=run end:1", "PPP", "PPP"}, // a new machine is initialised
		// sidecars
		{"s=wait wait", "PPP", "PPP"},
		{"s=- wait", "PPP", "PPP"},
		{"s=run- wait", "PPP", "PPP"},
		{"s=run wait", "PPP", "PPP"},
		{"s=run run", "RRR", "RRR"},
		{"s=run- run", "RRR", "RRR"}, // started again beside what runs
		{"s=wait:1 run", "RRR", "RRR"},
		{"s=end:1 run", "RRR", "RRR"},
		{"s=run end:0", "RRR", "RRR"}, // it is to end after the others
		{"s=run end:1", "RRR", "RRR"},
		{"s=end:0 end:0", "RSS", "SSS"},
		{"s=end:137 end:0", "RSS", "SSS"}, // how it ends does not matter
		{"s=end:0 end:1", "RRF", "FFF"},
		{"s=wait:1 end:0", "RSS", "SSS"},
		{"s=run i=wait wait", "PPP", "PPP"},
		{"s=run i=end:0 run", "RRR", "RRR"},
		{"s=run i=end:1 wait", "PPF", "PPF"},
		{"s=wait:1 i=run wait", "PPP", "PPP"},
		{"s=run s=wait wait", "PPP", "PPP"},
		{"s=run s=run run run", "RRR", "RRR"},
	}
	for _, test := range tests {
		t.Run(test.words, func(t *testing.T) {
			for terminal, want := range map[bool]string{false: test.want, true: test.terminal} {
				got := ""
				for _, policy := range []corev1.RestartPolicy{"Always", "OnFailure", "Never"} {
					spec, status := podOf(policy, test.words)
					got += string(Phase(&corev1.Pod{Spec: *spec}, status, terminal))[:1]
				}
				if got != want {
					t.Errorf("terminal %v: %s, want %s", terminal, got, want)
				}
			}
		})
	}
}

func TestPhaseByTheContainersOwnPolicies(t *testing.T) {
	never, onFailure := corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure
	tests := []struct {
		name, words string
		pod         corev1.RestartPolicy
		own         *corev1.ContainerRestartPolicy
		when        []corev1.ContainerRestartRule
		want        corev1.PodPhase
	}{
		{"own never, failed", "end:1", "Always", &never, nil, "Failed"},
		{"own never, succeeded", "end:0", "Always", &never, nil, "Succeeded"},
		{"own on failure, failed", "end:1", "Never", &onFailure, nil, "Running"},
		{"a rule restarts it", "end:42", "Never", &never, []corev1.ContainerRestartRule{testpod.RestartOn("In", 42)}, "Running"},
		{"a rule of another code", "end:43", "Never", &never, []corev1.ContainerRestartRule{testpod.RestartOn("In", 42)}, "Failed"},
		{"one of two is final", "end:1 end:0", "Always", &never, nil, "Running"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			spec, status := podOf(test.pod, test.words)
			spec.Containers[0].RestartPolicy, spec.Containers[0].RestartPolicyRules = test.own, test.when
			if got := Phase(&corev1.Pod{Spec: *spec}, status, false); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
	spec, status := podOf("Always", "i=end:1 wait")
	spec.InitContainers[0].RestartPolicy = &never
	if got := Phase(&corev1.Pod{Spec: *spec}, status, false); got != corev1.PodFailed {
		t.Errorf("an initial container that is never started again: %s", got)
	}
}

func TestConditionsOfStates(t *testing.T) {
	tests := []struct {
		words       string
		phase       corev1.PodPhase
		initialized string
		containers  string
	}{
		{"wait", "Pending", "True", "False ContainersNotReady containers with unready status: [c0]"},
		{"run", "Running", "True", "True"},
		{"run run-", "Running", "True", "False ContainersNotReady containers with unready status: [c1]"},
		{"- -", "Pending", "True", "False ContainersNotReady containers with unready status: [c0 c1]"},
		{"end:0", "Succeeded", "True PodCompleted", "False PodCompleted"},
		{"end:1", "Failed", "True", "False PodFailed"},
		{"run", "Failed", "True", "False PodFailed"},
		{"i=wait wait", "Pending", "False ContainersNotInitialized containers with incomplete status: [c0]", "False ContainersNotReady containers with unready status: [c1]"},
		{"i=run wait", "Pending", "False ContainersNotInitialized containers with incomplete status: [c0]", "False ContainersNotReady containers with unready status: [c1]"},
		{"i=end:1 wait", "Failed", "False ContainersNotInitialized containers with incomplete status: [c0]", "False PodFailed"},
		{"i=end:0 i=wait wait", "Pending", "False ContainersNotInitialized containers with incomplete status: [c1]", "False ContainersNotReady containers with unready status: [c2]"},
		{"i=- i=- wait", "Pending", "False ContainersNotInitialized containers with incomplete status: [c0 c1]", "False ContainersNotReady containers with unready status: [c2]"},
		{"i=end:0 i=end:0 wait", "Pending", "True", "False ContainersNotReady containers with unready status: [c2]"},
		{"i=end:0 run", "Running", "True", "True"},
		{"i=end:0 end:0", "Succeeded", "True PodCompleted", "False PodCompleted"},
		{"s=run- wait", "Pending", "False ContainersNotInitialized containers with incomplete status: [c0]", "False ContainersNotReady containers with unready status: [c0 c1]"},
		{"s=run wait", "Pending", "True", "False ContainersNotReady containers with unready status: [c1]"},
		{"s=run run", "Running", "True", "True"},
		{"s=run- run", "Running", "True", "False ContainersNotReady containers with unready status: [c0]"},
		{"s=wait:1 run", "Running", "True", "False ContainersNotReady containers with unready status: [c0]"},
	}
	for _, test := range tests {
		t.Run(test.words+" "+string(test.phase), func(t *testing.T) {
			spec, status := podOf("Always", test.words)
			status.Phase = test.phase
			text := func(c Condition) string {
				return strings.TrimSpace(strings.TrimSpace(string(c.Status)+" "+c.Reason) + " " + c.Message)
			}
			if got := text(Initialized(spec, status)); got != test.initialized {
				t.Errorf("initialized: %s, want %s", got, test.initialized)
			}
			if got := text(ContainersReady(spec, status)); got != test.containers {
				t.Errorf("containers ready: %s, want %s", got, test.containers)
			}
		})
	}
}

func TestReadinessGates(t *testing.T) {
	ready, not := Condition{Status: corev1.ConditionTrue}, Condition{corev1.ConditionFalse, "ContainersNotReady", "x"}
	spec := &corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "example.com/a"}, {ConditionType: "example.com/b"}}}
	set := func(a, b corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: "example.com/a", Status: a}, {Type: "example.com/b", Status: b}}
	}
	const missing = `corresponding condition of pod readiness gate "example.com/%" does not exist.`
	gate := func(name string) string { return strings.Replace(missing, "%", name, 1) }
	tests := []struct {
		name       string
		containers Condition
		set        []corev1.PodCondition
		want       Condition
	}{
		{"all true", ready, set("True", "True"), ready},
		{"containers are not ready", not, set("True", "True"), not},
		{"none is set", ready, nil, Condition{"False", "ReadinessGatesNotReady", gate("a") + ", " + gate("b")}},
		{"one is set", ready, set("True", "True")[:1], Condition{"False", "ReadinessGatesNotReady", gate("b")}},
		{"one is false", ready, set("False", "True"), Condition{"False", "ReadinessGatesNotReady", `the status of pod readiness gate "example.com/a" is not "True", but False`}},
		{"one is unknown", ready, set("True", "Unknown"), Condition{"False", "ReadinessGatesNotReady", `the status of pod readiness gate "example.com/b" is not "True", but Unknown`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := Ready(spec, test.containers, test.set); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}
