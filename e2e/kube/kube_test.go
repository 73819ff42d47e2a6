package kube

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// TestKubelet: a cluster can manage Bulkhead's pods like any others. Tests of mainly the kubelet's work, and those that
// e2e/node shares, take turns. The whole test takes turns with TestCritest of e2e/cri.
func TestKubelet(t *testing.T) {
	testturn.SkipUnless(t, 1, 2)
	w := newWorld(t)
	t.Run("pod", w.testPod)
	t.Run("beside each other", func(t *testing.T) {
		t.Run("deployment", testturn.In(3, 4, w.testDeployment))
		t.Run("static", testturn.In(1, 4, w.testStatic))
		t.Run("shared", testturn.In(3, 4, w.testShared))
		t.Run("job", testturn.In(1, 4, w.testJob))
		t.Run("init", testturn.In(3, 4, w.testInit))
		t.Run("liveness", testturn.In(1, 4, w.testLiveness))
		t.Run("volumes", w.testVolumes)
		t.Run("host paths", w.testHostPaths)
		t.Run("csi", testturn.In(3, 4, w.testCSI))
		t.Run("streams", w.testStreams)
		t.Run("resize", w.testResize)
		t.Run("delete", w.testDelete)
		t.Run("stats", w.testStats)
		t.Run("eviction", testturn.In(1, 4, w.testEviction))
		t.Run("network", w.testNetwork)
		t.Run("host network", w.testHostNetwork)
		t.Run("token", w.testToken)
		t.Run("security", w.testSecurity)
		t.Run("refused", w.testRefused)
	})
	t.Run("conformance", w.testConformance)
	t.Run("restart", w.testRestart)
	t.Run("reboot", w.testReboot)
	w.report(t)
}

// report logs the kubelet's warnings, and fails the test if they mention the eviction of an unexpected pod.
func (w *world) report(t *testing.T) {
	events, err := w.events(testdeadline.Context(t, 10*time.Second), "")
	if err != nil || strings.Count(events, ": Evicted: ") != strings.Count(events, evicted+": Evicted: ") {
		t.Errorf("events: %v", err)
	}
	t.Logf("warnings:\n%s", events)
}

// testPod: a pod runs, has logs, and executes commands.
func (w *world) testPod(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "one", `{containers: [{name: c, command: [sh, -c, "echo words; exec sleep 1000"]}]}`)
	pod := w.ready(ctx, t, "one")
	if pod.Status.PodIP == "" {
		t.Errorf("no address: %s", &pod.Status)
	}
	w.expectLog(ctx, t, "one", corev1.PodLogOptions{}, "words\n")
	out, errs, err := w.exec(ctx, "one", corev1.PodExecOptions{Command: []string{"sh", "-c", "cat; echo two >&2; exit 3"}},
		strings.NewReader("one\n"))
	if out != "one\n" || errs != "two\n" || err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("exec: %q, %q, %v", out, errs, err)
	}
}
