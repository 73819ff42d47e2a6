package node

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// gone waits until the API server has no pod with that name, and the host has n VMs.
func (w *world) gone(ctx context.Context, t *testing.T, name string, n int) {
	t.Helper()
	w.Wait(ctx, t, "the end of pod "+name, func(ctx context.Context) error {
		_, err := w.Client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if !errors.IsNotFound(err) {
			return fmt.Errorf("it still exists: %w", err)
		}
		if got := w.vms(t); got != n {
			return fmt.Errorf("the host has %d VMs, want %d", got, n)
		}
		return nil
	})
}

// quiet waits until the host has no VMs of earlier tests and the API server has deleted their pods. The node gives back
// a pod's resources between the two.
func (w *world) quiet(ctx context.Context, t *testing.T) {
	t.Helper()
	w.Wait(ctx, t, "the end of the pods before", func(ctx context.Context) error {
		if n := w.vms(t); n > 0 {
			return fmt.Errorf("there are %d VMs", n)
		}
		pods, err := w.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s still exists", pod.Name)
			}
		}
		return nil
	})
}

// testRestart kills the node while pods run. They run on, and the next node finds and reports changes. It ends pods
// that were deleted meanwhile.
func (w *world) testRestart(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.quiet(ctx, t)
	w.pod(ctx, t, "counts", `{containers: [{name: c, command: [sh, -c, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.5; done"]}]}`)
	w.pod(ctx, t, "ends", `{restartPolicy: Never, containers: [{name: c,
  command: [sh, -c, "while [ ! -e /tmp/go ]; do sleep 0.1; done; sleep 2; echo ended; exit 5"]}]}`)
	w.pod(ctx, t, "deleted", `{containers: [{name: c, command: [sleep, "1000"]}]}`)
	w.pod(ctx, t, "orphan", `{containers: [{name: c, command: [sleep, "1000"]}]}`)
	for _, name := range []string{"counts", "ends", "deleted", "orphan"} {
		w.ready(ctx, t, name)
	}
	if _, errs, err := w.exec(ctx, "ends", corev1.PodExecOptions{Command: []string{"touch", "/tmp/go"}}, nil); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	w.node.Kill()
	pods := w.Client.CoreV1().Pods(ns)
	if err := pods.Delete(ctx, "deleted", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := pods.Delete(ctx, "orphan", *metav1.NewDeleteOptions(0)); err != nil {
		t.Error(err)
	}
	select {
	case <-time.After(4 * time.Second): // the container ends in this time
	case <-ctx.Done():
	}
	w.serve()
	pod := w.until(ctx, t, "ends", "failed", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	if st := pod.Status.ContainerStatuses[0].State.Terminated; st == nil || st.ExitCode != 5 {
		t.Errorf("it ended with %v", st)
	}
	w.expectLog(ctx, t, "ends", corev1.PodLogOptions{}, "ended\n")
	w.gone(ctx, t, "deleted", 2)
	w.gone(ctx, t, "orphan", 2)
	if n := w.ready(ctx, t, "counts").Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the container was restarted %d times", n)
	}
	if _, errs, err := w.exec(ctx, "counts", corev1.PodExecOptions{Command: []string{"true"}}, nil); err != nil {
		t.Errorf("exec: %v: %s", err, errs)
	}
	out, err := pods.GetLogs("counts", &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		t.Error(err)
	}
	for i, line := range strings.Fields(string(out)) {
		if line != strconv.Itoa(i+1) {
			t.Fatalf("line %d of the log is %s", i+1, line)
		}
	}
}

// testSameName: a pod that is deleted and created again under its name is a new pod. It runs, and the old one ends.
func (w *world) testSameName(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	const spec = `{containers: [{name: c, command: [sleep, "1000"]}]}`
	w.quiet(ctx, t)
	old := w.pod(ctx, t, "again", spec)
	w.ready(ctx, t, "again")
	if err := w.Client.CoreV1().Pods(ns).Delete(ctx, "again", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	next := w.pod(ctx, t, "again", spec)
	if got := w.ready(ctx, t, "again"); got.UID != next.UID || got.UID == old.UID {
		t.Errorf("pod %s is ready, not %s", got.UID, next.UID)
	}
	w.Wait(ctx, t, "the end of the pod before", func(context.Context) error {
		if n := w.vms(t); n != 1 {
			return fmt.Errorf("there are %d VMs", n)
		}
		return nil
	})
}

// testDeletedWhileStarting: a pod that is deleted as soon as it is bound leaves nothing.
func (w *world) testDeletedWhileStarting(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.quiet(ctx, t)
	w.pod(ctx, t, "brief", `{containers: [{name: c, command: [sleep, "1000"]}]}`)
	w.until(ctx, t, "brief", "bound", func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
	if err := w.Client.CoreV1().Pods(ns).Delete(ctx, "brief", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone(ctx, t, "brief", 0)
}

// testDeletedWhileInitialising: a pod that is deleted while its init container runs ends with that container, and its
// other containers do not start. Its object is deleted after its VM is gone.
func (w *world) testDeletedWhileInitialising(t *testing.T) {
	ctx := testdeadline.Context(t, 20*time.Second) // the grace is two minutes
	w.quiet(ctx, t)
	w.pod(ctx, t, "initial", `{terminationGracePeriodSeconds: 120, containers: [{name: c, command: [sleep, "1000"]}],
  initContainers: [{name: i, command: [sh, -c, "trap 'exit 0' TERM; echo waits; while :; do sleep 0.1; done"]}]}`)
	pod := w.until(ctx, t, "initial", "initialising", func(pod *corev1.Pod) bool {
		all := pod.Status.InitContainerStatuses
		return len(all) == 1 && all[0].State.Running != nil
	})
	w.expectLog(ctx, t, "initial", corev1.PodLogOptions{Container: "i"}, "waits\n") // it handles the signal from now on
	pods := w.Client.CoreV1().Pods(ns)
	t.Cleanup(func() { // do not wait for the rest of its grace
		err := pods.Delete(context.WithoutCancel(ctx), "initial", *metav1.NewDeleteOptions(1))
		if err != nil && !errors.IsNotFound(err) {
			t.Error(err)
		}
	})
	changes, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=initial", ResourceVersion: pod.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	if err := pods.Delete(ctx, "initial", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for change := range changes.ResultChan() {
		pod, is := change.Object.(*corev1.Pod)
		if !is {
			t.Fatalf("the watch returned %v", change.Object)
		}
		for _, st := range pod.Status.ContainerStatuses {
			if st.State.Waiting == nil && (st.State.Terminated == nil || !st.State.Terminated.StartedAt.IsZero()) {
				t.Errorf("its container has started: %s", &pod.Status)
			}
		}
		if change.Type == watch.Deleted {
			if n := w.vms(t); n != 0 {
				t.Errorf("its object is gone, but there are %d VMs", n)
			}
			return
		}
	}
	t.Errorf("it did not end in time: %v", context.Cause(ctx))
}

// testLateSecret: pods wait for a missing Secret, as a volume and as a variable, and start once it exists.
func (w *world) testLateSecret(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "late", `{volumes: [{name: v, secret: {secretName: late}}],
  containers: [{name: c, command: [sh, -c, "cat /v/key; echo $WORD; exec sleep 1000"], volumeMounts: [{name: v, mountPath: /v}],
    env: [{name: WORD, valueFrom: {secretKeyRef: {name: late, key: word}}}]}]}`)
	w.pod(ctx, t, "late-word", `{containers: [{name: c, command: [sh, -c, "echo $WORD; exec sleep 1000"],
  env: [{name: WORD, valueFrom: {secretKeyRef: {name: late, key: word}}}]}]}`)
	w.Wait(ctx, t, "the events about the missing Secret", func(ctx context.Context) error {
		if got := w.reasons(ctx, t, "late"); !slices.Contains(got, "FailedMount") {
			return fmt.Errorf("there are %v", got)
		}
		if got := w.messages(ctx, t, "late-word", "MandatorySecretNotFound"); got != `Secret "late" not found` {
			return fmt.Errorf("the message about the variable is %q, among %v", got, w.reasons(ctx, t, "late-word"))
		}
		return nil
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "late"}, StringData: map[string]string{"key": "one\n", "word": "two"}}
	if _, err := w.Client.CoreV1().Secrets(ns).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.ready(ctx, t, "late")
	w.expectLog(ctx, t, "late", corev1.PodLogOptions{}, "one\ntwo\n")
	w.expectLog(ctx, t, "late-word", corev1.PodLogOptions{}, "two\n")
	secret.StringData["key"] = "three\n"
	if _, err := w.Client.CoreV1().Secrets(ns).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Wait(ctx, t, "the volume to be updated", func(ctx context.Context) error {
		out, errs, err := w.exec(ctx, "late", corev1.PodExecOptions{Command: []string{"cat", "/v/key"}}, nil)
		if err == nil && out != "three\n" {
			err = fmt.Errorf("it has %q, %s", out, errs)
		}
		return err
	})
}

// absence returns how long the API server is down. If it is down longer, the node retries at longer intervals.
func absence() time.Duration {
	if testturn.Long() {
		return time.Minute
	}
	return 20 * time.Second
}

// startSilence runs a command without output for more than half a minute. testSilence waits for it.
func (w *world) startSilence(t *testing.T) {
	ctx := testdeadline.Context(w.top, 5*time.Minute) // it outlives this subtest
	w.typed(ctx, t, "", "run", "silent", "--image", w.image, "--restart=Never", "--command", "--", "sleep", "1000")
	w.ready(ctx, t, "silent")
	said := make(chan string, 1)
	w.silence = said
	go func() { said <- w.typed(ctx, w.top, "", "exec", "silent", "--", "sh", "-c", "sleep 40; echo words") }()
}

// testSilence: a command without output for more than half a minute is not cut off.
func (w *world) testSilence(t *testing.T) {
	if got := <-w.silence; got != "words\n" { // bounded by its own context
		t.Errorf("its output is %q", got)
	}
	if err := w.Client.CoreV1().Pods(ns).Delete(t.Context(), "silent", *metav1.NewDeleteOptions(1)); err != nil {
		t.Error(err)
	}
}

// testWithoutAPI: while the API server is down, pods run and are restarted. The node reports it later.
func (w *world) testWithoutAPI(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.pod(ctx, t, "alone", `{containers: [{name: c, command: [sh, -c, "while [ ! -e /tmp/go ]; do sleep 0.1; done; sleep 4; exit 1"]}]}`)
	w.ready(ctx, t, "alone")
	if _, errs, err := w.exec(ctx, "alone", corev1.PodExecOptions{Command: []string{"touch", "/tmp/go"}}, nil); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	w.StopAPI()
	select {
	case <-time.After(absence()): // the container ends and is restarted in this time
	case <-ctx.Done():
	}
	w.StartAPI(w.top)
	w.top.Cleanup(w.end) // before it is killed
	w.WaitAPI(ctx, t)
	w.until(ctx, t, "alone", "started again", func(pod *corev1.Pod) bool {
		st := pod.Status.ContainerStatuses[0]
		return st.RestartCount == 1 && st.State.Running != nil && condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
	})
	w.WaitNode(ctx, t)
}

// testBlindStart: a node that starts while the API server is down takes over its pods and ends none. It reports them
// when the server is back.
func (w *world) testBlindStart(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.quiet(ctx, t)
	const spec = `{containers: [{name: c, command: [sleep, "1000"], livenessProbe: {exec: {command: ["true"]}, periodSeconds: 1}}]}`
	w.pod(ctx, t, "stays", spec)
	before := w.ready(ctx, t, "stays")
	w.StopAPI()
	w.node.Kill()
	w.serve()
	select {
	case <-time.After(10 * time.Second): // longer than the time between two checks of an orphan
	case <-ctx.Done():
	}
	if n := w.vms(t); n != 1 {
		t.Errorf("there are %d VMs", n)
	}
	w.StartAPI(w.top)
	w.top.Cleanup(w.end) // before it is killed
	w.WaitAPI(ctx, t)
	w.WaitNode(ctx, t)
	w.answers(ctx, t)
	if _, errs, err := w.exec(ctx, "stays", corev1.PodExecOptions{Command: []string{"true"}}, nil); err != nil {
		t.Errorf("exec: %v: %s", err, errs)
	}
	after := w.ready(ctx, t, "stays")
	was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
	if after.UID != before.UID || is.ContainerID != was.ContainerID || is.RestartCount != 0 {
		t.Errorf("it is another pod: %s", &after.Status)
	}
}

// testNodeDeleted: a deleted Node is created again.
func (w *world) testNodeDeleted(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	nodes := w.Client.CoreV1().Nodes()
	before, err := nodes.Get(ctx, testkube.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := nodes.Delete(ctx, testkube.NodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.WaitNode(ctx, t)
	after, err := nodes.Get(ctx, testkube.NodeName, metav1.GetOptions{})
	if err != nil || after.UID == before.UID {
		t.Errorf("node %v, %v", after, err)
	}
	registered(t, after)
}

// testTwice: a second node process on the same host refuses to start.
func (w *world) testTwice(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	first := w.command("")
	second := exec.CommandContext(ctx, first.Path, append(first.Args[1:], "--listen", "127.0.0.1:0")...)
	second.Env, second.Dir = first.Env, first.Dir
	if out, err := second.CombinedOutput(); err == nil || ctx.Err() != nil || !strings.Contains(string(out), "lock") {
		t.Errorf("a second node: %v: %s", err, out)
	}
}
