package podstatus

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

// statusOfWord returns a container's status for "run", "run-" (not started), "wait", "wait:N" and "end:N" with an exit
// code, and "-" for none.
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

// podOf returns a pod and its status for words: "i=" is an init container, "s=" a sidecar, others are regular.
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
		// The phases under Always, OnFailure and Never, first for a pod with more starts, then for a terminal one: P,
		// R, S or F.
		want, terminal string
	}{
		{words: "wait", want: "PPP", terminal: "PPP"},
		{words: "-", want: "PPP", terminal: "PPP"},
		{words: "- -", want: "PPP", terminal: "PPP"},
		{words: "run", want: "RRR", terminal: "RRR"},
		{words: "run run", want: "RRR", terminal: "RRR"},
		{words: "run wait", want: "PPP", terminal: "PPP"},
		{words: "run -", want: "PPP", terminal: "PPP"},
		{words: "run end:0", want: "RRR", terminal: "RRR"},
		{words: "run end:1", want: "RRR", terminal: "RRR"},
		{words: "run wait:1", want: "RRR", terminal: "RRR"},
		{words: "end:0", want: "RSS", terminal: "SSS"},
		{words: "end:1", want: "RRF", terminal: "FFF"},
		{words: "end:0 end:0", want: "RSS", terminal: "SSS"},
		{words: "end:0 end:1", want: "RRF", terminal: "FFF"},
		{words: "end:1 end:1", want: "RRF", terminal: "FFF"},
		{words: "end:0 -", want: "PPP", terminal: "PPP"},
		{words: "end:0 wait", want: "PPP", terminal: "PPP"},
		{words: "wait:1", want: "RRR", terminal: "FFF"},
		{words: "wait:0", want: "RRR", terminal: "FFF"},
		{words: "end:0 wait:1", want: "RRR", terminal: "FFF"},
		// init containers
		{words: "i=wait wait", want: "PPP", terminal: "PPP"},
		{words: "i=- wait", want: "PPP", terminal: "PPP"},
		{words: "i=run wait", want: "PPP", terminal: "PPP"},
		{words: "i=end:0 wait", want: "PPP", terminal: "PPP"},
		{words: "i=end:0 run", want: "RRR", terminal: "RRR"},
		{words: "i=end:0 end:0", want: "RSS", terminal: "SSS"},
		{words: "i=end:0 end:1", want: "RRF", terminal: "FFF"},
		{words: "i=end:1 wait", want: "PPF", terminal: "PPF"},
		{words: "i=wait:1 wait", want: "PPP", terminal: "PPP"},
		{words: "i=end:0 i=wait wait", want: "PPP", terminal: "PPP"},
		{words: "i=end:0 i=run wait", want: "PPP", terminal: "PPP"},
		{words: "i=end:0 i=end:1 wait", want: "PPF", terminal: "PPF"},
		{words: "i=end:1 i=wait wait", want: "PPF", terminal: "PPF"},
		{words: "i=end:0 i=end:0 run", want: "RRR", terminal: "RRR"},
		{words: "i=run end:1", want: "PPP", terminal: "PPP"}, // a new VM is initialised
		// sidecars
		{words: "s=wait wait", want: "PPP", terminal: "PPP"},
		{words: "s=- wait", want: "PPP", terminal: "PPP"},
		{words: "s=run- wait", want: "PPP", terminal: "PPP"},
		{words: "s=run wait", want: "PPP", terminal: "PPP"},
		{words: "s=run run", want: "RRR", terminal: "RRR"},
		{words: "s=run- run", want: "RRR", terminal: "RRR"}, // restarted beside the running ones
		{words: "s=wait:1 run", want: "RRR", terminal: "RRR"},
		{words: "s=end:1 run", want: "RRR", terminal: "RRR"},
		{words: "s=run end:0", want: "RRR", terminal: "RRR"}, // it will end after the others
		{words: "s=run end:1", want: "RRR", terminal: "RRR"},
		{words: "s=end:0 end:0", want: "RSS", terminal: "SSS"},
		{words: "s=end:137 end:0", want: "RSS", terminal: "SSS"}, // its exit code does not matter
		{words: "s=end:0 end:1", want: "RRF", terminal: "FFF"},
		{words: "s=wait:1 end:0", want: "RSS", terminal: "SSS"},
		{words: "s=run i=wait wait", want: "PPP", terminal: "PPP"},
		{words: "s=run i=end:0 run", want: "RRR", terminal: "RRR"},
		{words: "s=run i=end:1 wait", want: "PPF", terminal: "PPF"},
		{words: "s=wait:1 i=run wait", want: "PPP", terminal: "PPP"},
		{words: "s=run s=wait wait", want: "PPP", terminal: "PPP"},
		{words: "s=run s=run run run", want: "RRR", terminal: "RRR"},
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
		{name: "own never, failed", words: "end:1", pod: "Always", own: &never, want: "Failed"},
		{name: "own never, succeeded", words: "end:0", pod: "Always", own: &never, want: "Succeeded"},
		{name: "own on failure, failed", words: "end:1", pod: "Never", own: &onFailure, want: "Running"},
		{name: "a rule restarts it", words: "end:42", pod: "Never", own: &never,
			when: []corev1.ContainerRestartRule{testpod.RestartOn("In", 42)}, want: "Running"},
		{name: "a rule of another code", words: "end:43", pod: "Never", own: &never,
			when: []corev1.ContainerRestartRule{testpod.RestartOn("In", 42)}, want: "Failed"},
		{name: "one of two is final", words: "end:1 end:0", pod: "Always", own: &never, want: "Running"},
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
		t.Errorf("an init container that is never started again: %s", got)
	}
}

func TestConditionsOfStates(t *testing.T) {
	tests := []struct {
		words       string
		phase       corev1.PodPhase
		initialized string
		containers  string
	}{
		{words: "wait", phase: "Pending", initialized: "True", containers: "False ContainersNotReady containers with unready status: [c0]"},
		{words: "run", phase: "Running", initialized: "True", containers: "True"},
		{words: "run run-", phase: "Running", initialized: "True", containers: "False ContainersNotReady containers with unready status: [c1]"},
		{words: "- -", phase: "Pending", initialized: "True", containers: "False ContainersNotReady containers with unready status: [c0 c1]"},
		{words: "end:0", phase: "Succeeded", initialized: "True PodCompleted", containers: "False PodCompleted"},
		{words: "end:1", phase: "Failed", initialized: "True", containers: "False PodFailed"},
		{words: "run", phase: "Failed", initialized: "True", containers: "False PodFailed"},
		{words: "i=wait wait", phase: "Pending", initialized: "False ContainersNotInitialized containers with incomplete status: [c0]",
			containers: "False ContainersNotReady containers with unready status: [c1]"},
		{words: "i=run wait", phase: "Pending", initialized: "False ContainersNotInitialized containers with incomplete status: [c0]",
			containers: "False ContainersNotReady containers with unready status: [c1]"},
		{words: "i=end:1 wait", phase: "Failed", initialized: "False ContainersNotInitialized containers with incomplete status: [c0]",
			containers: "False PodFailed"},
		{words: "i=end:0 i=wait wait", phase: "Pending",
			initialized: "False ContainersNotInitialized containers with incomplete status: [c1]",
			containers:  "False ContainersNotReady containers with unready status: [c2]"},
		{words: "i=- i=- wait", phase: "Pending", initialized: "False ContainersNotInitialized containers with incomplete status: [c0 c1]",
			containers: "False ContainersNotReady containers with unready status: [c2]"},
		{words: "i=end:0 i=end:0 wait", phase: "Pending", initialized: "True",
			containers: "False ContainersNotReady containers with unready status: [c2]"},
		{words: "i=end:0 run", phase: "Running", initialized: "True", containers: "True"},
		{words: "i=end:0 end:0", phase: "Succeeded", initialized: "True PodCompleted", containers: "False PodCompleted"},
		{words: "s=run- wait", phase: "Pending", initialized: "False ContainersNotInitialized containers with incomplete status: [c0]",
			containers: "False ContainersNotReady containers with unready status: [c0 c1]"},
		{words: "s=run wait", phase: "Pending", initialized: "True", containers: "False ContainersNotReady containers with unready status: [c1]"},
		{words: "s=run run", phase: "Running", initialized: "True", containers: "True"},
		{words: "s=run- run", phase: "Running", initialized: "True", containers: "False ContainersNotReady containers with unready status: [c0]"},
		{words: "s=wait:1 run", phase: "Running", initialized: "True",
			containers: "False ContainersNotReady containers with unready status: [c0]"},
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
		{name: "all true", containers: ready, set: set("True", "True"), want: ready},
		{name: "containers are not ready", containers: not, set: set("True", "True"), want: not},
		{name: "none is set", containers: ready, want: Condition{"False", "ReadinessGatesNotReady", gate("a") + ", " + gate("b")}},
		{name: "one is set", containers: ready, set: set("True", "True")[:1], want: Condition{"False", "ReadinessGatesNotReady", gate("b")}},
		{name: "one is false", containers: ready, set: set("False", "True"),
			want: Condition{"False", "ReadinessGatesNotReady", `the status of pod readiness gate "example.com/a" is not "True", but False`}},
		{name: "one is unknown", containers: ready, set: set("True", "Unknown"),
			want: Condition{"False", "ReadinessGatesNotReady", `the status of pod readiness gate "example.com/b" is not "True", but Unknown`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := Ready(spec, test.containers, test.set); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}
