package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// probed is a pod with a probe of every kind and every handler that busybox can answer.
const probed = `{apiVersion: v1, kind: Pod, metadata: {name: probed}, spec: {
  terminationGracePeriodSeconds: 1,
  volumes: [{name: v, emptyDir: {medium: Memory}}],
  initContainers: [
   {name: side, image: "IMAGE", restartPolicy: Always, command: [sh, -c, "sleep 0.5; touch /tmp/up; exec sleep 1000"],
    startupProbe: {periodSeconds: 1, failureThreshold: 60, timeoutSeconds: 10, exec: {command: [test, -e, /tmp/up]}}}],
  containers: [
   {name: file, image: "IMAGE", command: [sh, -c, "touch /v/ready; exec sleep 1000"], volumeMounts: [{name: v, mountPath: /v}],
    env: [{name: FILE, value: /v/ready}],
    readinessProbe: {periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 10, exec: {command: [test, -e, $(FILE)]}}},
   {name: web, image: "IMAGE",
    command: [sh, -c, "mkdir -p /www/ready; echo yes >/www/ready/index.html; sleep 0.5; exec httpd -f -p 8080 -h /www"],
    ports: [{name: http, containerPort: 8080}],
    startupProbe: {periodSeconds: 1, failureThreshold: 60, timeoutSeconds: 10, httpGet: {port: http, path: /ready/}},
    livenessProbe: {periodSeconds: 1, failureThreshold: 5, timeoutSeconds: 10, tcpSocket: {port: 8080}},
    readinessProbe: {periodSeconds: 1, timeoutSeconds: 10, httpGet: {port: 8080, path: /ready}}},
   {name: tcp, image: "IMAGE", command: [httpd, -f, -p, "9000"],
    readinessProbe: {periodSeconds: 1, timeoutSeconds: 10, tcpSocket: {port: 9000}}},
   {name: sick, image: "IMAGE", volumeMounts: [{name: v, mountPath: /v}],
    command: [sh, -c, "[ -e /v/again ] || touch /v/again /tmp/sick; trap 'exit 0' TERM; while :; do sleep 0.1; done"],
    livenessProbe: {periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 10, terminationGracePeriodSeconds: 30,
     exec: {command: [sh, -c, "test ! -e /tmp/sick || { echo I am ill; false; }"]}}},
   {name: slow, image: "IMAGE", volumeMounts: [{name: v, mountPath: /v}], command: [sleep, "1000"],
    startupProbe: {periodSeconds: 1, failureThreshold: 60, timeoutSeconds: 10, exec: {command: [test, -e, /v/slow]}},
    livenessProbe: {periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 10, exec: {command: [test, -e, /v/slow]}},
    readinessProbe: {periodSeconds: 1, timeoutSeconds: 10, exec: {command: ["true"]}}}]}}`

// testProbes checks the probes of a real pod: which containers count as started and ready, and which are killed.
// Neither a pause nor a new engine may fail a probe.
func testProbes(t *testing.T, w *world) {
	w.must(t, strings.ReplaceAll(probed, "IMAGE", image), "run", "-d", "-q", "-")
	// slow has not started, so its other probes do not count.
	w.until(t, "probed", "the others are ready", func(s corev1.PodStatus) bool {
		return commonState(s, "file web tcp sick") == "started ready" && containerOf(s, "sick").RestartCount == 1
	})
	status := w.inspect(t, "probed").Status
	if got := commonState(status, "slow"); got != "" {
		t.Errorf("a container that has not started is %s", got)
	}
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		if c := condition(status, kind); c.Status != corev1.ConditionFalse || c.Message != "containers with unready status: [slow]" {
			t.Errorf("%s is %s: %s", kind, c.Status, c.Message)
		}
	}
	if c := containerOf(status, "side"); c.Started == nil || !*c.Started || !c.Ready {
		t.Errorf("the sidecar: %+v", c)
	}
	// sick got SIGTERM and ended by itself.
	last := containerOf(status, "sick").LastTerminationState.Terminated
	if last == nil || last.ExitCode != 0 {
		t.Errorf("the container killed by its liveness probe ended with %+v", last)
	}
	events := w.must(t, "", "events", "probed")
	for _, want := range []string{"Container sick failed liveness probe, will be restarted", "Unhealthy", "Liveness probe failed: I am ill"} {
		if !strings.Contains(events, want) {
			t.Errorf("no event contains %q:\n%s", want, events)
		}
	}
	w.must(t, "", "exec", "-c", "file", "probed", "touch", "/v/slow")
	w.until(t, "probed", "all are ready", ready)

	w.must(t, "", "pause", "probed")
	time.Sleep(2500 * time.Millisecond) // two periods
	if got := commonState(w.inspect(t, "probed").Status, "file web tcp sick slow"); got != "started ready" {
		t.Errorf("paused: %s", got)
	}
	w.must(t, "", "resume", "probed")
	w.must(t, "", "exec", "-c", "file", "probed", "rm", "/v/ready")
	w.until(t, "probed", "the file's loss is seen", func(s corev1.PodStatus) bool { return commonState(s, "file") == "started" && !ready(s) })
	w.shutdown(t)
	w.until(t, "probed", "the next engine knows which containers start and are ready", func(s corev1.PodStatus) bool {
		return commonState(s, "web tcp sick slow side") == "started ready" && commonState(s, "file") == "started"
	})
	w.must(t, "", "exec", "-c", "file", "probed", "touch", "/v/ready")
	w.until(t, "probed", "all are ready again", ready)
	for _, c := range w.inspect(t, "probed").Status.ContainerStatuses {
		if restarts := map[string]int32{"sick": 1}[c.Name]; c.RestartCount != restarts {
			t.Errorf("%s was restarted %d times", c.Name, c.RestartCount)
		}
	}
	w.must(t, "", "rm", "-f", "probed")
}

// until waits for a condition of a pod's status.
func (w *world) until(t *testing.T, name, what string, so func(corev1.PodStatus) bool) {
	t.Helper()
	limit := time.Now().Add(testdeadline.For(time.Minute))
	for {
		status := w.inspect(t, name).Status
		if so(status) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("not within a minute: %s: %+v", what, status)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// commonState returns the common state of these containers: started, ready, or nothing.
func commonState(s corev1.PodStatus, names string) string {
	started, ready := true, true
	for name := range strings.FieldsSeq(names) {
		c := containerOf(s, name)
		started = started && c.Started != nil && *c.Started
		ready = ready && c.Ready
	}
	switch {
	case started && ready:
		return "started ready"
	case started:
		return "started"
	case ready:
		return "ready and not started"
	}
	return ""
}

func containerOf(s corev1.PodStatus, name string) corev1.ContainerStatus {
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

func condition(s corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{Message: fmt.Sprintf("there is no %s", kind)}
}

func ready(s corev1.PodStatus) bool {
	return condition(s, corev1.PodReady).Status == corev1.ConditionTrue
}
