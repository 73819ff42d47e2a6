package podapi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestLifeCycleFaults(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{name: "a name that an init container has", text: "  initContainers: [{name: main, image: i}]\n",
			want: `spec.containers[0].name: "main" appears twice`},
		{name: "an init container without an image", text: "  initContainers: [{name: i}]\n",
			want: "spec.initContainers[0].image: is required"},
		{name: "an init container with hooks",
			text: "  initContainers: [{name: i, image: i, lifecycle: {preStop: {exec: {command: [a]}}}}]\n",
			want: "spec.initContainers[0].lifecycle: an init container has one only with restartPolicy Always"},
		{name: "an own policy", text: "    restartPolicy: Sometimes\n", want: `spec.containers[0].restartPolicy: "Sometimes" is not one of`},
		{name: "rules alone", text: "    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]\n",
			want: "restartPolicy: is required together with restartPolicyRules"},
		{name: "a rule's action", text: "    restartPolicy: Never\n    restartPolicyRules: [{action: RestartAllContainers, exitCodes: " +
			"{operator: In, values: [1]}}]\n", want: "restartPolicyRules[0].action"},
		{name: "a rule without codes", text: "    restartPolicy: Never\n    restartPolicyRules: [{action: Restart}]\n",
			want: "restartPolicyRules[0].exitCodes: is required"},
		{name: "a rule without values", text: "    restartPolicy: Never\n    restartPolicyRules: [{action: Restart, exitCodes: {operator: " +
			"In}}]\n", want: "exitCodes.values: is required"},
		{name: "a rule's operator", text: "    restartPolicy: Never\n    restartPolicyRules: [{action: Restart, exitCodes: {operator: Like, " +
			"values: [1]}}]\n", want: `exitCodes.operator: "Like" is not one of`},
		{name: "a value twice", text: "    restartPolicy: Never\n    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: " +
			"[1, 1]}}]\n", want: "exitCodes.values: a value appears twice"},
		{name: "too many rules", text: "    restartPolicy: Never\n    restartPolicyRules: [" +
			strings.Repeat("{action: Restart, exitCodes: {operator: In, values: [1]}},", 21) + "]\n", want: "21 rules are more than 20"},
		{name: "no deadline", text: "  activeDeadlineSeconds: 0\n", want: "spec.activeDeadlineSeconds: 0 is not between 1 and 2147483647"},
		{name: "a gate", text: "  readinessGates: [{conditionType: \"a b\"}]\n", want: `spec.readinessGates[0].conditionType: "a b"`},
		{name: "a hook without an action", text: "    lifecycle: {preStop: {}}\n", want: "lifecycle.preStop: names no handler"},
		{name: "a hook with two", text: "    lifecycle: {preStop: {exec: {command: [a]}, sleep: {seconds: 1}}}\n",
			want: "lifecycle.preStop: names more than one handler"},
		{name: "a hook without a command", text: "    lifecycle: {postStart: {exec: {}}}\n",
			want: "lifecycle.postStart.exec.command: is required"},
		{name: "a hook that sleeps too long", text: "    lifecycle: {preStop: {sleep: {seconds: 31}}}\n",
			want: "sleep.seconds: 31 is not between 0 and the grace period of 30"},
		{name: "a hook's port", text: "    lifecycle: {preStop: {httpGet: {port: 0}}}\n",
			want: "lifecycle.preStop.httpGet.port: 0 is not between"},
		{name: "a signal without a system", text: "    lifecycle: {stopSignal: SIGUSR1}\n",
			want: "lifecycle.stopSignal: can be set only together with spec.os.name"},
		{name: "no signal", text: "    lifecycle: {stopSignal: SIGOOPS}\n  os: {name: linux}\n",
			want: `lifecycle.stopSignal: "SIGOOPS" is not a signal`},
		{name: "no real-time signal", text: "    lifecycle: {stopSignal: SIGRTMIN+16}\n  os: {name: linux}\n",
			want: `"SIGRTMIN+16" is not a signal`},
		{name: "a message's policy", text: "    terminationMessagePolicy: Always\n", want: `terminationMessagePolicy: "Always" is not one of`},
		{name: "a message's place", text: "    terminationMessagePath: words\n",
			want: `terminationMessagePath: "words" is not a place for a file`},
		{name: "ephemeral containers", text: "  ephemeralContainers: [{name: e, image: i}]\n",
			want: "spec.ephemeralContainers: is not honoured: the API adds them to running pods only"},
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
	if initial.ImagePullPolicy != corev1.PullIfNotPresent || initial.TerminationMessagePath != "/dev/termination-log" ||
		pods[0].Generation != 1 {
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
