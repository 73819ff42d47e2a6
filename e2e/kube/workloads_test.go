package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// testDeployment: a Deployment has its pods, and replaces a deleted one.
func (w *world) testDeployment(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	api := w.Client.AppsV1().Deployments(ns)
	deployment := decode[appsv1.Deployment](t, `{metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 1,
    containers: [{name: c, image: "`+w.image+`", command: [httpd, -f, -p, "8080", -h, /etc],
      readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}}]}}}}`)
	if _, err := api.Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ready := func(ctx context.Context) error {
		d, err := api.Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 2 {
			err = fmt.Errorf("its status is %s", &d.Status)
		}
		return err
	}
	w.Wait(ctx, t, "the deployment to be ready", ready)
	pods := w.list(ctx, t, "app=web")
	w.delete(ctx, t, pods[0].Name)
	w.Wait(ctx, t, "the deployment to be ready again", ready)
	background := metav1.DeletePropagationBackground
	if err := api.Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Error(err)
	}
	w.Wait(ctx, t, "the deployment's pods to be gone", func(ctx context.Context) error {
		if left := w.list(ctx, t, "app=web"); len(left) > 0 {
			return fmt.Errorf("%d are left", len(left))
		}
		return nil
	})
}

// list returns the pods with a label.
func (w *world) list(ctx context.Context, t testing.TB, selector string) []corev1.Pod {
	t.Helper()
	pods, err := w.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

// delete deletes a pod and waits until it is gone.
func (w *world) delete(ctx context.Context, t testing.TB, name string) {
	t.Helper()
	if err := w.Client.CoreV1().Pods(ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone(ctx, t, name)
}

// gone waits until no pod has that name.
func (w *world) gone(ctx context.Context, t testing.TB, name string) {
	t.Helper()
	w.Wait(ctx, t, "pod "+name+" to be gone", func(ctx context.Context) error {
		pod, err := w.Client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if errors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it still exists: %s", &pod.Status)
		}
		return err
	})
}

// testStatic: a static pod runs from its manifest, appears in the API, and ends when the manifest is removed.
func (w *world) testStatic(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	manifest := filepath.Join(w.Manifests(), "static.yaml")
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: static, namespace: %s}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: %q, command: [sleep, "1000"]}]}
`, ns, w.image)
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const mirror = "static-" + testkube.NodeName
	w.ready(ctx, t, mirror)
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	w.gone(ctx, t, mirror)
}

// testShared: two containers of a pod share an emptyDir, the loopback and the host name.
func (w *world) testShared(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "shared", `{volumes: [{name: v, emptyDir: {}}, {name: m, emptyDir: {medium: Memory, sizeLimit: 4Mi}}], containers: [
  {name: a, command: [sh, -c, "echo from a >/v/f; httpd -p 127.0.0.1:80 -h /v; exec sleep 1000"],
    volumeMounts: [{name: v, mountPath: /v}, {name: m, mountPath: /m}]},
  {name: b, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /w, subPath: sub}, {name: m, mountPath: /m}]}]}`)
	w.ready(ctx, t, "shared")
	in := func(container, script string) string {
		out, errs, err := w.exec(ctx, "shared", corev1.PodExecOptions{Container: container, Command: []string{"sh", "-c", script}}, nil)
		if err != nil {
			t.Errorf("%s in %s: %q, %v", script, container, errs, err)
		}
		return strings.TrimSpace(out)
	}
	if got := in("b", "hostname; wget -q -O - http://127.0.0.1/f; echo from b >/w/g"); got != "shared\nfrom a" {
		t.Errorf("b has %q", got)
	}
	if got := in("a", "cat /v/sub/g; stat -f -c %T /m; df -k /m | tail -n 1 | awk '{print $2}'"); got != "from b\ntmpfs\n4096" {
		t.Errorf("a has %q", got)
	}
}

// testJob: a Job's failed pod is retried, and then the Job completes.
func (w *world) testJob(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	api := w.Client.BatchV1().Jobs(ns)
	// The second try finds the first one's file in the volume.
	job := decode[batchv1.Job](t, `{metadata: {name: job}, spec: {template: {spec: {restartPolicy: OnFailure,
  volumes: [{name: v, emptyDir: {}}],
  containers: [{name: c, image: "`+w.image+`", volumeMounts: [{name: v, mountPath: /v}],
    command: [sh, -c, "test -e /v/f && echo done && exit 0; touch /v/f; echo failed >/dev/termination-log; exit 7"]}]}}}}`)
	if _, err := api.Create(ctx, job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Wait(ctx, t, "the job to be complete", func(ctx context.Context) error {
		job, err := api.Get(ctx, "job", metav1.GetOptions{})
		if err == nil && job.Status.Succeeded != 1 {
			err = fmt.Errorf("its status is %s", &job.Status)
		}
		return err
	})
	pod := w.list(ctx, t, "job-name=job")[0]
	st := pod.Status.ContainerStatuses[0]
	if last := st.LastTerminationState.Terminated; last == nil || last.ExitCode != 7 || last.Message != "failed\n" {
		t.Errorf("the first try: %v", last)
	}
	if got := w.logs(ctx, t, pod.Name, corev1.PodLogOptions{}); got != "done\n" || st.State.Terminated.Reason != "Completed" {
		t.Errorf("the second try: %q, %v", got, st.State)
	}
	background := metav1.DeletePropagationBackground
	if err := api.Delete(ctx, "job", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Error(err)
	}
}

// testInit: init containers run one after another. A sidecar starts before the others and ends after them.
func (w *world) testInit(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "init", `{restartPolicy: Never, volumes: [{name: v, emptyDir: {}}], initContainers: [
  {name: first, command: [sh, -c, "echo first >>/v/f"], volumeMounts: [{name: v, mountPath: /v}]},
  {name: side, restartPolicy: Always,
    command: [sh, -c, "trap 'echo end; exit 0' TERM; echo side >>/v/f; while :; do sleep 1 & wait; done"],
    volumeMounts: [{name: v, mountPath: /v}], startupProbe: {exec: {command: [grep, side, /v/f]}, periodSeconds: 1}},
  {name: second, command: [sh, -c, "echo second >>/v/f"], volumeMounts: [{name: v, mountPath: /v}]}],
 containers: [{name: c, command: [cat, /v/f], volumeMounts: [{name: v, mountPath: /v}]}]}`)
	pod := w.until(ctx, t, "init", "complete", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	if got := w.logs(ctx, t, "init", corev1.PodLogOptions{Container: "c"}); got != "first\nside\nsecond\n" {
		t.Errorf("they ran as %q", got)
	}
	if got := w.logs(ctx, t, "init", corev1.PodLogOptions{Container: "side"}); got != "end\n" {
		t.Errorf("the sidecar's output is %q", got)
	}
	for _, st := range pod.Status.InitContainerStatuses {
		if st.State.Terminated == nil || st.State.Terminated.ExitCode != 0 {
			t.Errorf("%s: %v", st.Name, st.State)
		}
	}
}

// testLiveness: a container that fails its liveness probe is restarted, and the pod stays.
func (w *world) testLiveness(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "live", `{containers: [{name: c, command: [sh, -c, "touch /tmp/ok; echo made; exec sleep 1000"],
  livenessProbe: {exec: {command: [test, -e, /tmp/ok]}, initialDelaySeconds: 2, periodSeconds: 1, failureThreshold: 2}}]}`)
	w.expectLog(ctx, t, "live", corev1.PodLogOptions{}, "made\n")
	if _, errs, err := w.exec(ctx, "live", corev1.PodExecOptions{Command: []string{"rm", "/tmp/ok"}}, nil); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	pod := w.until(ctx, t, "live", "restarted", func(pod *corev1.Pod) bool {
		return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].RestartCount == 1 &&
			pod.Status.ContainerStatuses[0].State.Running != nil
	})
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 143 && last.ExitCode != 137 {
		t.Errorf("it ended with %v", last)
	}
}
