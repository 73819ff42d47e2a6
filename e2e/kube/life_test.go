package kube

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// testResize: the limits of a running pod change in place. Its container sees them and the added CPU.
func (w *world) testResize(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "resize", `{containers: [{name: c, command: [sleep, "1000"], resources: {
  requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 200m, memory: 64Mi}}}]}`)
	w.ready(ctx, t, "resize")
	patch := `{"spec": {"containers": [{"name": "c", "resources": {
  "requests": {"cpu": "100m", "memory": "640Mi"}, "limits": {"cpu": "1400m", "memory": "640Mi"}}}]}}`
	api := w.Client.CoreV1().Pods(ns)
	if _, err := api.Patch(ctx, "resize", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"); err != nil {
		t.Fatal(err)
	}
	pod := w.until(ctx, t, "resize", "resized", func(pod *corev1.Pod) bool {
		r := pod.Status.ContainerStatuses[0].Resources
		return r != nil && r.Limits.Cpu().MilliValue() == 1400 && r.Limits.Memory().Value() == 640<<20
	})
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the container was restarted %d times", n)
	}
	out, errs, err := w.exec(ctx, "resize",
		corev1.PodExecOptions{Command: []string{"sh", "-c", "cd /sys/fs/cgroup; cat memory.max cpu.max; nproc"}}, nil)
	if want := strconv.Itoa(640<<20) + "\n140000 100000\n2\n"; err != nil || out != want {
		t.Errorf("in the container: %q, %q, %v, want %q", out, errs, err, want)
	}
}

// testDelete: a pod that handles the signal is gone at once. Another one is gone when its grace is over.
func (w *world) testDelete(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trap  string
		grace time.Duration
	}{
		"willing":   {"exit 0", 60 * time.Second},
		"unwilling": {":", 3 * time.Second},
	} {
		ctx := testdeadline.Context(t, time.Minute)
		w.pod(ctx, t, name, fmt.Sprintf(`{containers: [{name: c,
  command: [sh, -c, "trap '%s' TERM; echo set; while :; do sleep 1 & wait; done"]}]}`, c.trap))
		w.expectLog(ctx, t, name, corev1.PodLogOptions{}, "set\n")
		began := time.Now()
		w.typed(ctx, t, "", "delete", "pod", name, fmt.Sprintf("--grace-period=%.0f", c.grace.Seconds())) // waits for its end
		took := time.Since(began)
		t.Logf("%s: %v", name, took)
		if most := testdeadline.For(10 * time.Second); name == "willing" && took > most || took > c.grace+most {
			t.Errorf("%s was gone after %v", name, took)
		}
		if name == "unwilling" && took < c.grace {
			t.Errorf("%s was gone after %v, too early", name, took)
		}
	}
}

// testRestart kills the server while pods run. They run on, and the next server finds all changes.
func (w *world) testRestart(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "counts", `{containers: [{name: c, command: [sh, -c, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done"]}]}`)
	w.pod(ctx, t, "ends", `{restartPolicy: Never, containers: [{name: c,
  command: [sh, -c, "while [ ! -e /tmp/go ]; do sleep 0.1; done; sleep 2; echo ended; exit 5"]}]}`)
	w.ready(ctx, t, "counts")
	w.ready(ctx, t, "ends")
	if _, errs, err := w.exec(ctx, "ends", corev1.PodExecOptions{Command: []string{"touch", "/tmp/go"}}, nil); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	w.cri.Kill()
	select {
	case <-time.After(4 * time.Second): // the container ends in this time
	case <-ctx.Done():
	}
	w.serveCRI(t)
	pod := w.until(ctx, t, "ends", "failed", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	if st := pod.Status.ContainerStatuses[0].State.Terminated; st == nil || st.ExitCode != 5 {
		t.Errorf("it ended with %v", st)
	}
	if got := w.logs(ctx, t, "ends", corev1.PodLogOptions{}); got != "ended\n" {
		t.Errorf("its log is %q", got)
	}
	pod = w.ready(ctx, t, "counts")
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the container was restarted %d times", n)
	}
	if _, errs, err := w.exec(ctx, "counts", corev1.PodExecOptions{Command: []string{"true"}}, nil); err != nil {
		t.Errorf("exec: %v: %s", err, errs)
	}
	for i, line := range strings.Fields(w.logs(ctx, t, "counts", corev1.PodLogOptions{})) {
		if line != strconv.Itoa(i+1) {
			t.Fatalf("line %d of the log is %s", i+1, line)
		}
	}
}

// testReboot simulates a reboot of the node: it kills every process and removes the state directory. Pods run again
// with their disks and logs.
func (w *world) testReboot(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "reboot", `{volumes: [{name: v, emptyDir: {}}], containers: [{name: c,
  command: [sh, -c, "echo x >>/v/f; sync; cat /v/f; exec sleep 1000"], volumeMounts: [{name: v, mountPath: /v}]}]}`)
	w.expectLog(ctx, t, "reboot", corev1.PodLogOptions{}, "x\n")
	before := w.ready(ctx, t, "reboot")
	w.kubelet.Kill()
	w.cri.Kill()
	if err := w.KillPods(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(w.state()); err != nil {
		t.Fatal(err)
	}
	w.serveCRI(t)
	w.kubelet = w.StartKubelet(w.top, w.socket())
	after := w.until(ctx, t, "reboot", "running again", func(pod *corev1.Pod) bool {
		st := pod.Status.ContainerStatuses[0]
		return st.State.Running != nil && st.RestartCount == 1
	})
	if after.UID != before.UID {
		t.Error("the pod was replaced")
	}
	for previous, want := range map[bool]string{true: "x\n", false: "x\nx\n"} {
		w.expectLog(ctx, t, "reboot", corev1.PodLogOptions{Previous: previous}, want)
	}
}
