package podapi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestLifeCycleFaults(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"a name that an initial container has", "  initContainers: [{name: main, image: i}]\n", `spec.containers[0].name: "main" is there twice`},
		{"an initial container without an image", "  initContainers: [{name: i}]\n", "spec.initContainers[0].image: is required"},
		{"an initial container with hooks", "  initContainers: [{name: i, image: i, lifecycle: {preStop: {exec: {command: [a]}}}}]\n", "spec.initContainers[0].lifecycle: an init container has one only with restartPolicy Always"},
		{"an own policy", "    restartPolicy: Sometimes\n", `spec.containers[0].restartPolicy: "Sometimes" is not one of`},
		{"rules alone", "    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]\n", "restartPolicy: is required together with restartPolicyRules"},
		{"a rule's action", "    restartPolicy: Never\n    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]\n", "restartPolicyRules[0].action"},
		{"a rule without codes", "    restartPolicy: Never\n    restartPolicyRules: [{action: Restart}]\n", "restartPolicyRules[0].exitCodes: is required"},
		{"a rule without values", "    restartPolicy: Never\n    restartPolicyRules: [{action: Restart, exitCodes: {operator: In}}]\n", "exitCodes.values: is required"},
		{"a rule's operator", "    restartPolicy: Never\n    restartPolicyRules: [{action: Restart, exitCodes: {operator: Like, values: [1]}}]\n", `exitCodes.operator: "Like" is not one of`},
		{"a value twice", "    restartPolicy: Never\n    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1, 1]}}]\n", "exitCodes.values: a value is there twice"},
		{"too many rules", "    restartPolicy: Never\n    restartPolicyRules: [" + strings.Repeat("{action: Restart, exitCodes: {operator: In, values: [1]}},", 21) + "]\n", "21 rules are more than 20"},
		{"no deadline", "  activeDeadlineSeconds: 0\n", "spec.activeDeadlineSeconds: 0 is not between 1 and 2147483647"},
		{"a gate", "  readinessGates: [{conditionType: \"a b\"}]\n", `spec.readinessGates[0].conditionType: "a b"`},
		{"a hook without an action", "    lifecycle: {preStop: {}}\n", "lifecycle.preStop: names no handler"},
		{"a hook with two", "    lifecycle: {preStop: {exec: {command: [a]}, sleep: {seconds: 1}}}\n", "lifecycle.preStop: names more than one handler"},
		{"a hook without a command", "    lifecycle: {postStart: {exec: {}}}\n", "lifecycle.postStart.exec.command: is required"},
		{"a hook that sleeps too long", "    lifecycle: {preStop: {sleep: {seconds: 31}}}\n", "sleep.seconds: 31 is not between 0 and the grace period of 30"},
		{"a hook's port", "    lifecycle: {preStop: {httpGet: {port: 0}}}\n", "lifecycle.preStop.httpGet.port: 0 is not between"},
		{"a signal without a system", "    lifecycle: {stopSignal: SIGUSR1}\n", "lifecycle.stopSignal: can be set only together with spec.os.name"},
		{"no signal", "    lifecycle: {stopSignal: SIGOOPS}\n  os: {name: linux}\n", `lifecycle.stopSignal: "SIGOOPS" is not a signal`},
		{"no real-time signal", "    lifecycle: {stopSignal: SIGRTMIN+16}\n  os: {name: linux}\n", `"SIGRTMIN+16" is not a signal`},
		{"a message's policy", "    terminationMessagePolicy: Always\n", `terminationMessagePolicy: "Always" is not one of`},
		{"a message's place", "    terminationMessagePath: words\n", `terminationMessagePath: "words" is not a place for a file`},
		{"ephemeral containers", "  ephemeralContainers: [{name: e, image: i}]\n", "spec.ephemeralContainers: is not honoured: the API adds them to running pods only"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Decode("f.yaml", []byte(head+test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestLifeCycleIsAccepted(t *testing.T) {
	pods, err := Decode("f.yaml", []byte(head+`
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: NotIn, values: [1, 2]}}]
    terminationMessagePath: /tmp/words
    terminationMessagePolicy: FallbackToLogsOnError
    lifecycle:
      postStart: {exec: {command: [a]}}
      preStop: {sleep: {seconds: 3}}
      stopSignal: SIGRTMIN+1
  initContainers:
  - {name: i, image: "i:1"}
  - {name: s, image: "s:1", restartPolicy: Always, lifecycle: {preStop: {exec: {command: [a]}}}}
  activeDeadlineSeconds: 60
  readinessGates: [{conditionType: example.com/up}]
  os: {name: linux}
`))
	if err != nil {
		t.Fatal(err)
	}
	initial := pods[0].Spec.InitContainers[0]
	if initial.ImagePullPolicy != corev1.PullIfNotPresent || initial.TerminationMessagePath != "/dev/termination-log" || pods[0].Generation != 1 {
		t.Errorf("defaults: %+v", initial)
	}
}

func TestEphemeral(t *testing.T) {
	with := func(change func(*corev1.EphemeralContainerCommon)) corev1.EphemeralContainer {
		spec := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "busybox:1"}}
		change(&spec.EphemeralContainerCommon)
		return spec
	}
	for want, spec := range map[string]corev1.EphemeralContainer{
		"":                   with(func(*corev1.EphemeralContainerCommon) {}),
		"name":               with(func(c *corev1.EphemeralContainerCommon) { c.Name = "D_1" }),
		"image: is required": with(func(c *corev1.EphemeralContainerCommon) { c.Image = "" }),
		"ports":              with(func(c *corev1.EphemeralContainerCommon) { c.Ports = []corev1.ContainerPort{{ContainerPort: 1}} }),
		"lifecycle":          with(func(c *corev1.EphemeralContainerCommon) { c.Lifecycle = &corev1.Lifecycle{} }),
		"livenessProbe":      with(func(c *corev1.EphemeralContainerCommon) { c.LivenessProbe = &corev1.Probe{} }),
	} {
		err := Ephemeral(&spec)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if spec.ImagePullPolicy == "" || spec.TerminationMessagePath == "" {
			t.Errorf("no defaults: %+v", spec)
		}
	}
}
