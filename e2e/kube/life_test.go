package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/testkube"
)

// testResize: a running pod gets other limits in place, which its container sees.
func (w *world) testResize(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "resize", `{containers: [{name: c, command: [sleep, "1000"], resources: {
  requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 200m, memory: 64Mi}}}]}`)
	w.ready(ctx, t, "resize")
	patch := `{"spec": {"containers": [{"name": "c", "resources": {
  "requests": {"cpu": "100m", "memory": "640Mi"}, "limits": {"cpu": "400m", "memory": "640Mi"}}}]}}`
	api := w.Client.CoreV1().Pods(ns)
	if _, err := api.Patch(ctx, "resize", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"); err != nil {
		t.Fatal(err)
	}
	pod := w.until(ctx, t, "resize", "resized", func(pod *corev1.Pod) bool {
		r := pod.Status.ContainerStatuses[0].Resources
		return r != nil && r.Limits.Cpu().MilliValue() == 400 && r.Limits.Memory().Value() == 640<<20
	})
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the container was started anew %d times", n)
	}
	out, errs, err := w.exec(ctx, "resize",
		corev1.PodExecOptions{Command: []string{"cat", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max"}}, nil)
	if want := strconv.Itoa(640<<20) + "\n40000 100000\n"; err != nil || out != want {
		t.Errorf("in the container: %q, %q, %v, want %q", out, errs, err, want)
	}
}

// testDelete: a pod that does as it is asked is gone at once, and another one when its
// grace period is over.
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
		w.says(ctx, t, name, corev1.PodLogOptions{}, "set\n")
		began, grace := time.Now(), int64(c.grace.Seconds())
		if err := w.Client.CoreV1().Pods(ns).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
			t.Fatal(err)
		}
		w.gone(ctx, t, name)
		took := time.Since(began)
		t.Logf("%s: %v", name, took)
		if most := testdeadline.For(10 * time.Second); name == "willing" && took > most || took > c.grace+most {
			t.Errorf("%s was gone after %v", name, took)
		}
		if name == "unwilling" && took < c.grace {
			t.Errorf("%s was gone after %v, before its time", name, took)
		}
	}
}

// summary is what is read of the kubelet's figures.
type summary struct {
	Pods []struct {
		PodRef     struct{ Name string }
		CPU        struct{ UsageCoreNanoSeconds uint64 }
		Memory     struct{ WorkingSetBytes uint64 }
		Containers []struct {
			Name   string
			CPU    struct{ UsageCoreNanoSeconds uint64 }
			Memory struct{ WorkingSetBytes uint64 }
			Rootfs struct{ UsedBytes uint64 }
		}
	}
}

// testStats: the kubelet has figures of a pod and of its container.
func (w *world) testStats(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "stats", `{containers: [{name: c, command: [sh, -c, "dd if=/dev/zero of=/f bs=1M count=4; while :; do :; done"],
  resources: {limits: {cpu: 200m}}}]}`)
	w.ready(ctx, t, "stats")
	w.WaitEvery(ctx, t, time.Second, "figures of the pod", func(ctx context.Context) error {
		raw, err := w.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + testkube.NodeName + "/proxy/stats/summary").DoRaw(ctx)
		if err != nil {
			return err
		}
		var s summary
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		for _, pod := range s.Pods {
			if pod.PodRef.Name != "stats" {
				continue
			}
			for _, c := range pod.Containers {
				if pod.CPU.UsageCoreNanoSeconds > 0 && pod.Memory.WorkingSetBytes > 0 &&
					c.CPU.UsageCoreNanoSeconds > 0 && c.Memory.WorkingSetBytes > 0 && c.Rootfs.UsedBytes > 4<<20 {
					return nil
				}
			}
			return fmt.Errorf("they are %+v", pod)
		}
		return fmt.Errorf("there are none of it in %s", raw)
	})
}

// testRestart kills the server while pods run: they run on, and what has become of them
// meanwhile is found.
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
	case <-time.After(4 * time.Second): // in which the container ends
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
		t.Errorf("the container was started anew %d times", n)
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

// testReboot takes from the node what a reboot takes: every process, and the state directory.
// Pods run again, and what they have on their disks and in their logs is there.
func (w *world) testReboot(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "reboot", `{volumes: [{name: v, emptyDir: {}}], containers: [{name: c,
  command: [sh, -c, "echo x >>/v/f; sync; cat /v/f; exec sleep 1000"], volumeMounts: [{name: v, mountPath: /v}]}]}`)
	w.says(ctx, t, "reboot", corev1.PodLogOptions{}, "x\n")
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
		t.Error("it is another pod")
	}
	for previous, want := range map[bool]string{true: "x\n", false: "x\nx\n"} {
		w.says(ctx, t, "reboot", corev1.PodLogOptions{Previous: previous}, want)
	}
}
