package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// testOrder: init containers and sidecars start in order, with their hooks. At the end the sidecar, stopped by
// its own signal, prints the order.
func testOrder(t *testing.T, w *world) {
	y := `apiVersion: v1
kind: Pod
metadata: {name: order}
spec:
  restartPolicy: Never
  os: {name: linux}
  volumes: [{name: v, emptyDir: {}}]
  initContainers:
  - {name: first, image: IMAGE, command: [sh, -c, "sleep 0.2; echo first >>/v/log"], volumeMounts: [{name: v, mountPath: /v}]}
  - name: web
    image: IMAGE
    restartPolicy: Always
    command:
    - sh
    - -c
    - |
      mkdir -p /www/cgi-bin
      printf '#!/bin/sh\necho $HTTP_USER_AGENT >>/www/asked; echo; echo bye' >/www/cgi-bin/bye
      chmod +x /www/cgi-bin/bye
      httpd -p 8080 -h /www
      trap 'cat /www/asked; exit 0' TERM
      while :; do sleep 0.05; done
    ports: [{name: http, containerPort: 8080}]
    lifecycle:
      postStart:
        exec:
          command: [sh, -c, "until wget -q -O - 127.0.0.1:8080/cgi-bin/bye >/dev/null 2>&1; do sleep 0.1; done; rm /www/asked"]
      preStop: {httpGet: {path: /cgi-bin/bye, port: http}}
  - name: side
    image: IMAGE
    restartPolicy: Always
    command: [sh, -c, "trap 'echo signal >>/v/log; cat /v/log; exit 9' USR1; echo side >>/v/log; while :; do sleep 0.05; done"]
    volumeMounts: [{name: v, mountPath: /v}]
    lifecycle:
      stopSignal: SIGUSR1
      postStart: {exec: {command: [sh, -c, "until grep -q side /v/log; do sleep 0.05; done; sleep 0.3; echo side-hook >>/v/log"]}}
      preStop: {exec: {command: [sh, -c, "echo side-stop >>/v/log"]}}
  - {name: second, image: IMAGE, command: [sh, -c, "echo second >>/v/log"], volumeMounts: [{name: v, mountPath: /v}]}
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, "echo main >>/v/log; until [ -e /tmp/hooked ]; do sleep 0.05; done; sleep 0.3; echo end >>/v/log"]
    volumeMounts: [{name: v, mountPath: /v}]
    lifecycle: {postStart: {exec: {command: [touch, /tmp/hooked]}}, preStop: {exec: {command: [sh, -c, "echo never >>/v/log"]}}}
`
	w.must(t, strings.ReplaceAll(y, "IMAGE", image), "run", "-d", "-q", "-")
	if code := w.run(t, "", "wait", "order").ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d: a sidecar's end is not the pod's", code)
	}
	pod := w.inspect(t, "order")
	if log := w.must(t, "", "logs", "-c", "side", "order"); log != "first\nside\nside-hook\nsecond\nmain\nend\nside-stop\nsignal\n" {
		t.Errorf("the order was:\n%s", log)
	}
	if log := w.must(t, "", "logs", "-c", "web", "order"); log != "kube-lifecycle/1.37\n" {
		t.Errorf("the server was asked by %q", log)
	}
	var states []string
	for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		end := c.State.Terminated
		if end == nil {
			t.Fatalf("%s has not ended: %+v", c.Name, c.State)
		}
		states = append(states, fmt.Sprintf("%s %d %s", c.Name, end.ExitCode, end.Reason))
	}
	want := []string{"first 0 Completed", "web 0 Completed", "side 9 Error", "second 0 Completed", "main 0 Completed"}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Error(diff)
	}
	if s := pod.Status.InitContainerStatuses[2].StopSignal; pod.Status.Phase != corev1.PodSucceeded || s == nil || *s != "SIGUSR1" {
		t.Errorf("phase %s, the sidecar's signal %v", pod.Status.Phase, s)
	}
}

// testEnds checks restart policies, termination messages and a failing hook.
func testEnds(t *testing.T, w *world) {
	y := `apiVersion: v1
kind: Pod
metadata: {name: ends}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, emptyDir: {}}]
  containers:
  - name: rule
    image: IMAGE
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
    command: [sh, -c, "echo again >>/v/times; [ $(wc -l </v/times) = 2 ] && exit 3; exit 42"]
    volumeMounts: [{name: v, mountPath: /v}]
  - name: words
    image: IMAGE
    terminationMessagePath: /v/words/last
    command: [sh, -c, "printf last-words >/v/words/last"]
    volumeMounts: [{name: v, mountPath: /v}]
  - {name: usual, image: IMAGE, securityContext: {runAsUser: 1000}, command: [sh, -c, "printf usual-words >/dev/termination-log"]}
  - {name: log, image: IMAGE, terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "echo from the log; exit 1"]}
  - {name: quiet, image: IMAGE, terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "echo from the log"]}
  - {name: hook, image: IMAGE, command: [sleep, "60"], lifecycle: {postStart: {exec: {command: [sh, -c, "exit 1"]}}}}
`
	w.must(t, strings.ReplaceAll(y, "IMAGE", image), "run", "-d", "-q", "-")
	w.run(t, "", "wait", "ends")
	want := map[string]string{
		"rule": "3 1 ", "words": "0 0 last-words", "usual": "0 0 usual-words", "log": "1 0 from the log\n", "quiet": "0 0 ", "hook": "137 0 ",
	}
	got := map[string]string{}
	for _, c := range w.inspect(t, "ends").Status.ContainerStatuses {
		if c.State.Terminated == nil {
			t.Fatalf("%s has not ended: %+v", c.Name, c.State)
		}
		got[c.Name] = fmt.Sprint(c.State.Terminated.ExitCode, " ", c.RestartCount, " ", c.State.Terminated.Message)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// testInitialFailure: a foreground run shows the output of init containers while they run, and exits with the
// code of the failed one.
func testInitialFailure(t *testing.T, w *world) {
	c := w.run(t, `{apiVersion: v1, kind: Pod, metadata: {name: fails}, spec: {restartPolicy: Never,
  initContainers: [{name: i, image: "`+image+`", command: [sh, -c, "echo working; exit 6"]}],
  containers: [{name: c, image: "`+image+`", command: [echo, never]}]}}`, "run", "-q", "-")
	if c.ProcessState.ExitCode() != 6 || !strings.Contains(c.out.String(), "working") || strings.Contains(c.out.String(), "never") {
		t.Error(c)
	}
	if ps := w.must(t, "", "ps"); !strings.Contains(ps, "Init:Error") {
		t.Errorf("ps: %s", ps)
	}
	w.must(t, "", "rm", "fails")
	// While they run, inspect shows the VM like that of any running pod.
	w.must(t, `{apiVersion: v1, kind: Pod, metadata: {name: slow}, spec: {
  initContainers: [{name: i, image: "`+image+`", command: [sleep, "1000"]}],
  containers: [{name: c, image: "`+image+`"}]}}`, "run", "-d", "-q", "-")
	for _, args := range [][]string{
		{"ps", "-o", "jsonpath={..accel}"},
		{"stats", "--no-stream", "slow", "-o", "jsonpath={..memoryLimitBytes}"},
	} {
		if said := strings.TrimSpace(w.must(t, "", args...)); said == "" || said == "0" {
			t.Errorf("%q prints nothing during the start", args)
		}
	}
	w.must(t, "", "rm", "-f", "slow")
}

func testDeadline(t *testing.T, w *world) {
	began := time.Now()
	w.must(t, `{apiVersion: v1, kind: Pod, metadata: {name: deadline}, spec: {activeDeadlineSeconds: 2, terminationGracePeriodSeconds: 1,
  containers: [{name: c, image: "`+image+`", command: [sleep, "1000"]}]}}`, "run", "-d", "-q", "-")
	w.run(t, "", "wait", "deadline")
	status := w.inspect(t, "deadline").Status
	if status.Phase != corev1.PodFailed || status.Reason != "DeadlineExceeded" || time.Since(began) < 2*time.Second {
		t.Errorf("after %v: phase %s, reason %s", time.Since(began), status.Phase, status.Reason)
	}
	if ps := w.must(t, "", "ps"); !strings.Contains(ps, "DeadlineExceeded") {
		t.Errorf("ps: %s", ps)
	}
}

// testReplaced: a VM that dies is replaced by a newly initialised one.
func testReplaced(t *testing.T, w *world) {
	w.must(t, `{apiVersion: v1, kind: Pod, metadata: {name: replaced}, spec: {terminationGracePeriodSeconds: 0,
  initContainers: [{name: i, image: "`+image+`", command: [touch, /tmp/x]},
    {name: s, image: "`+image+`", restartPolicy: Always, command: [sleep, "1000"]}],
  containers: [{name: c, image: "`+image+`", command: [sleep, "1000"]}]}}`, "run", "-d", "-q", "-")
	defer w.must(t, "", "rm", "-f", "replaced")
	w.until(t, "replaced", "it runs", ready)
	for _, p := range w.processes() {
		if p.qemu() != "" && !p.warm() {
			if err := kill(p.pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.until(t, "replaced", "it runs again", func(s corev1.PodStatus) bool { return ready(s) && s.ContainerStatuses[0].RestartCount == 1 })
	status := w.inspect(t, "replaced").Status
	for _, c := range status.InitContainerStatuses {
		if c.RestartCount != 1 || !c.Ready {
			t.Errorf("%+v", c)
		}
	}
	if last := status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.Reason != "VMKilled" {
		t.Errorf("the last run ended with %+v", last)
	}
}

// testDebug: an ephemeral container sees the processes of its target, and survives the engine that created it.
func testDebug(t *testing.T, w *world) {
	w.must(t, `{apiVersion: v1, kind: Pod, metadata: {name: host}, spec: {terminationGracePeriodSeconds: 0, containers: [
  {name: a, image: "`+image+`", command: [sleep, "4242"]},
  {name: b, image: "`+image+`", command: [sleep, "5353"]}]}}`, "run", "-d", "-q", "-")
	name := strings.TrimSpace(w.must(t, "", "debug", "host", "--target", "b", "--", "sleep", "6464"))
	const look = `for c in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$c; echo; done | grep ^sleep | sort; readlink /proc/1/exe`
	seen := func() string { return w.must(t, "", "exec", "-c", name, "host", "--", "sh", "-c", look) }
	if got := seen(); got != "sleep 5353 \nsleep 6464 \n/bin/busybox\n" {
		t.Errorf("seen by %s: %q", name, got)
	}
	got := w.must(t, "", "exec", "-c", "a", "host", "--", "sh", "-c", `cat /proc/*/cmdline | tr '\0' ' '`)
	if strings.Contains(got, "6464") || strings.Contains(got, "5353") {
		t.Errorf("seen by a container that is not a target: %s", got)
	}
	for _, args := range [][]string{{"-c", "a"}, {"--target", "c"}, {"-c", "Bad_"}, {"--image", "localhost/none:1"}} {
		if c := w.run(t, "", append([]string{"debug", "host"}, args...)...); c.ProcessState.ExitCode() == 0 {
			t.Error(c)
		}
	}
	c := w.run(t, "typed", "debug", "-i", "-c", "d", "host", "--", "sh", "-c", "cat; echo; exit 3")
	if c.ProcessState.ExitCode() != 3 || c.out.String() != "typed\n" {
		t.Error(c)
	}
	if got := w.must(t, "", "logs", "-c", "d", "host"); got != "typed\n" {
		t.Errorf("log of an ephemeral container: %q", got)
	}
	w.shutdown(t)
	pod := w.inspect(t, "host")
	limit := time.Now().Add(testdeadline.For(10 * time.Second)) // until it was checked
	for pod.Status.Phase == corev1.PodPending && time.Now().Before(limit) {
		time.Sleep(50 * time.Millisecond)
		pod = w.inspect(t, "host")
	}
	if n := len(pod.Spec.EphemeralContainers); n != 3 || pod.Spec.EphemeralContainers[0].TargetContainerName != "b" {
		t.Errorf("%d ephemeral containers: %+v", n, pod.Spec.EphemeralContainers)
	}
	s := pod.Status.EphemeralContainerStatuses
	if len(s) != 3 || s[0].State.Running == nil || s[1].State.Waiting == nil || s[2].State.Terminated == nil {
		t.Errorf("ephemeral containers: %+v", s)
	}
	if got := seen(); !strings.Contains(got, "sleep 6464") {
		t.Errorf("after the engine's end: %q", got)
	}
	w.must(t, "", "rm", "-f", "host")
}
