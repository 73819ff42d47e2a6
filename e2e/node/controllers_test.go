package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// testRollout: a Deployment with a new template is replaced pod by pod, with enough ready pods at all times, and can be
// rolled back.
func (w *world) testRollout(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.apply(ctx, t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: r}, spec: {replicas: 3, selector: {matchLabels: {app: r}},
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}},
  template: {metadata: {labels: {app: r}}, spec: {terminationGracePeriodSeconds: 1,
    containers: [{name: c, image: IMAGE, env: [{name: V, value: one}], command: [sh, -c, "echo $V; exec sleep 1000"],
      readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}}]}}}}`)
	w.typed(ctx, t, "", "rollout", "status", "deployment/r", "--timeout=100s")
	least := w.leastReady(ctx, t, "app=r")
	w.typed(ctx, t, "", "set", "env", "deployment/r", "V=two")
	w.typed(ctx, t, "", "rollout", "status", "deployment/r", "--timeout=100s")
	if n := least(); n < 3 {
		t.Errorf("%d pods were ready meanwhile", n)
	}
	w.expectLogs(ctx, t, "app=r", "two\n")
	w.typed(ctx, t, "", "rollout", "undo", "deployment/r")
	w.typed(ctx, t, "", "rollout", "status", "deployment/r", "--timeout=100s")
	w.expectLogs(ctx, t, "app=r", "one\n")
}

// leastReady watches pods until the returned function is called, which returns the smallest number of ready pods.
func (w *world) leastReady(ctx context.Context, t *testing.T, labels string) func() int {
	t.Helper()
	pods := w.Client.CoreV1().Pods(ns)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		t.Fatal(err)
	}
	ready := map[string]bool{}
	count := func(pod *corev1.Pod) {
		ready[pod.Name] = pod.DeletionTimestamp == nil && condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
	}
	for i := range list.Items {
		count(&list.Items[i])
	}
	ctx, stop := context.WithCancel(ctx)
	changes, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: labels, ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	least := make(chan int, 1)
	go func() {
		fewest := len(list.Items)
		for change := range changes.ResultChan() {
			if pod, ok := change.Object.(*corev1.Pod); ok {
				count(pod)
			}
			n := 0
			for _, is := range ready {
				if is {
					n++
				}
			}
			fewest = min(fewest, n)
		}
		least <- fewest
	}()
	return func() int { stop(); changes.Stop(); return <-least }
}

// expectLogs waits until all pods with labels, except those being deleted, have logged exactly words.
func (w *world) expectLogs(ctx context.Context, t *testing.T, labels, words string) {
	t.Helper()
	list, err := w.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			w.expectLog(ctx, t, pod.Name, corev1.PodLogOptions{}, words)
		}
	}
}

// testStatefulSet: a pod keeps its name and host name when its VM is killed, and its neighbour runs on. After a
// deletion, a pod with the same name is created.
func (w *world) testStatefulSet(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.apply(ctx, t, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: ss}, spec: {replicas: 2, serviceName: ss,
  selector: {matchLabels: {app: ss}}, template: {metadata: {labels: {app: ss}}, spec: {terminationGracePeriodSeconds: 1,
    volumes: [{name: v, emptyDir: {}}],
    containers: [{name: c, image: IMAGE, volumeMounts: [{name: v, mountPath: /v}],
      command: [sh, -c, "hostname >>/v/f; sync; cat /v/f; exec sleep 1000"]}]}}}}`)
	w.typed(ctx, t, "", "rollout", "status", "statefulset/ss", "--timeout=100s")
	first, second := w.ready(ctx, t, "ss-0"), w.ready(ctx, t, "ss-1")
	w.expectLog(ctx, t, "ss-1", corev1.PodLogOptions{}, "ss-1\n") // it has written to its volume
	w.crash(t, second)
	again := w.until(ctx, t, "ss-1", "running again", func(pod *corev1.Pod) bool {
		return pod.Status.ContainerStatuses[0].RestartCount == 1 && condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
	})
	if again.UID != second.UID {
		t.Error("after the VM's end it is another pod")
	}
	w.expectLog(ctx, t, "ss-1", corev1.PodLogOptions{}, "ss-1\nss-1\n") // and its volume
	if now := w.ready(ctx, t, "ss-0"); now.UID != first.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("its neighbour: %s", &now.Status)
	}
	w.typed(ctx, t, "", "delete", "pod", "ss-1")
	w.typed(ctx, t, "", "rollout", "status", "statefulset/ss", "--timeout=100s")
	if other := w.ready(ctx, t, "ss-1"); other.UID == second.UID {
		t.Error("after its deletion it is the same pod")
	}
	w.expectLog(ctx, t, "ss-1", corev1.PodLogOptions{}, "ss-1\n")
}

// crash kills a pod's VM.
func (w *world) crash(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(w.data(), "sandboxes", "*", "pod.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range records {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), string(pod.UID)) {
			continue
		}
		for _, pid := range neighbours(t, filepath.Base(filepath.Dir(path))) {
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err == nil && strings.HasPrefix(string(comm), "qemu") {
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
	t.Fatalf("no VM of pod %s, among %d records", pod.Name, len(records))
}

// neighbours returns the processes in the cgroup of a sandbox's shim.
func neighbours(t *testing.T, sandbox string) (pids []int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	group := func(dir string) string {
		text, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		return string(text)
	}
	shim := ""
	for _, path := range lines {
		if text, _ := os.ReadFile(path); strings.HasPrefix(string(text), "bulkhead-shim\x00") && strings.Contains(string(text), sandbox) {
			shim = filepath.Dir(path)
		}
	}
	for _, path := range lines {
		if dir := filepath.Dir(path); shim != "" && group(dir) == group(shim) {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// testDrain: a drain evicts pods, waits for a disruption budget, and skips the DaemonSet's pod. Pods that come back
// after the drain run.
func (w *world) testDrain(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.quiet(ctx, t)
	w.apply(ctx, t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: drained}, spec: {replicas: 2,
  selector: {matchLabels: {app: drained}},
  template: {metadata: {labels: {app: drained}}, spec: {terminationGracePeriodSeconds: 1,
    containers: [{name: c, image: IMAGE, command: [sleep, "1000"]}]}}}}`)
	w.typed(ctx, t, "", "rollout", "status", "deployment/drained", "--timeout=100s")
	w.budget(ctx, t, "drained", 2)
	drain := []string{"drain", testkube.NodeName, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app=drained"}
	if out, err := w.kubectl(ctx, append(drain, "--timeout=3s")...).CombinedOutput(); err == nil {
		t.Errorf("drained despite the budget: %s", out)
	}
	if err := w.Client.PolicyV1().PodDisruptionBudgets(ns).Delete(ctx, "drained", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	w.typed(ctx, t, "", append(drain, "--timeout=60s")...)
	w.quiet(ctx, t)
	w.typed(ctx, t, "", "uncordon", testkube.NodeName)
	w.typed(ctx, t, "", "rollout", "status", "deployment/drained", "--timeout=100s")
}

// budget creates a disruption budget with a minimum of least pods, and waits until it applies to that many.
func (w *world) budget(ctx context.Context, t *testing.T, app string, least int32) {
	t.Helper()
	n := intstr.FromInt32(least)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &n, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}}
	budgets := w.Client.PolicyV1().PodDisruptionBudgets(ns)
	if _, err := budgets.Create(ctx, b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := budgets.Delete(context.WithoutCancel(ctx), b.Name, metav1.DeleteOptions{})
		if err != nil && !errors.IsNotFound(err) {
			t.Error(err)
		}
	})
	w.Wait(ctx, t, "the budget to hold", func(ctx context.Context) error {
		now, err := budgets.Get(ctx, b.Name, metav1.GetOptions{})
		if err == nil && (now.Status.ObservedGeneration == 0 || now.Status.CurrentHealthy < least) {
			err = fmt.Errorf("its status is %v", now.Status)
		}
		return err
	})
}

// startCronJob creates a CronJob for every minute. testCronJob waits for its first Job.
func (w *world) startCronJob(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	manifest := `{apiVersion: batch/v1, kind: CronJob, metadata: {name: cron}, spec: {schedule: "* * * * *", concurrencyPolicy: Forbid,
  jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: IMAGE, command: [echo, it is time]}]}}}}}}`
	w.typed(ctx, t, strings.ReplaceAll(manifest, "IMAGE", w.image), "apply", "-f", "-")
}

// testCronJob: a Job of the CronJob completes.
func (w *world) testCronJob(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.Wait(ctx, t, "a Job of the CronJob to complete", func(ctx context.Context) error {
		jobs, err := w.Client.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, job := range jobs.Items {
			for _, c := range job.Status.Conditions {
				if c.Type == batchv1.JobComplete && strings.HasPrefix(job.Name, "cron-") {
					return nil
				}
			}
		}
		return fmt.Errorf("none of %d has completed", len(jobs.Items))
	})
	w.typed(ctx, t, "", "delete", "cronjob", "cron")
}
