package node

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// apply applies a manifest as a user, and deletes it at the test's end.
func (w *world) apply(ctx context.Context, t *testing.T, manifest string) {
	t.Helper()
	manifest = strings.ReplaceAll(manifest, "IMAGE", w.image)
	w.typed(ctx, t, manifest, "apply", "-f", "-")
	t.Cleanup(func() {
		ctx := testdeadline.Context(t, 2*time.Minute)
		w.typed(context.WithoutCancel(ctx), t, manifest, "delete", "--ignore-not-found", "-f", "-")
	})
}

// testDeployment: pods are created and deleted with the number of replicas.
func (w *world) testDeployment(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.apply(ctx, t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 0, selector: {matchLabels: {app: d}},
  template: {metadata: {labels: {app: d}}, spec: {terminationGracePeriodSeconds: 1,
    containers: [{name: c, image: IMAGE, command: [sleep, "1000"], readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}}]}}}}`)
	w.typed(ctx, t, "", "scale", "deployment/d", "--replicas=20")
	w.typed(ctx, t, "", "rollout", "status", "deployment/d", "--timeout=100s")
	if n := w.vms(t); n < 20 {
		t.Errorf("%d VMs", n)
	}
	w.typed(ctx, t, "", "scale", "deployment/d", "--replicas=0")
	w.Wait(ctx, t, "the replicas' end", func(ctx context.Context) error {
		list, err := w.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=d"})
		if n := w.vms(t); err == nil && len(list.Items)+n > 0 { // pods of earlier tests have been deleted
			err = fmt.Errorf("%d pods and %d VMs are left", len(list.Items), n)
		}
		return err
	})
}

// testJob: a failing Job is retried up to its limit, and a successful one completes.
func (w *world) testJob(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.apply(ctx, t, `{apiVersion: batch/v1, kind: Job, metadata: {name: good}, spec: {completions: 2, parallelism: 2,
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: IMAGE, command: ["true"]}]}}}}`)
	w.apply(ctx, t, `{apiVersion: batch/v1, kind: Job, metadata: {name: bad}, spec: {backoffLimit: 1,
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: IMAGE, command: ["false"]}]}}}}`)
	w.typed(ctx, t, "", "wait", "job/good", "--for=condition=Complete", "--timeout=100s")
	w.typed(ctx, t, "", "wait", "job/bad", "--for=condition=Failed", "--timeout=100s")
}

// testDaemonSet: a DaemonSet has a pod on the node, with an init container.
func (w *world) testDaemonSet(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.apply(ctx, t, `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: ds}, spec: {selector: {matchLabels: {app: ds}},
  template: {metadata: {labels: {app: ds}}, spec: {terminationGracePeriodSeconds: 1, volumes: [{name: v, emptyDir: {}}],
    initContainers: [{name: i, image: IMAGE, command: [sh, -c, "echo made >/v/f"], volumeMounts: [{name: v, mountPath: /v}]}],
    containers: [{name: c, image: IMAGE, command: [sh, -c, "cat /v/f; exec sleep 1000"], volumeMounts: [{name: v, mountPath: /v}]}]}}}}`)
	w.typed(ctx, t, "", "rollout", "status", "daemonset/ds", "--timeout=100s")
	w.Wait(ctx, t, "its words", func(context.Context) error {
		if out := w.typed(ctx, t, "", "logs", "daemonset/ds"); out != "made\n" {
			return fmt.Errorf("its output is %q", out)
		}
		return nil
	})
}

// testAdmission: a pod that the node cannot run fails with the kubelet's reason.
func (w *world) testAdmission(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	for name, tt := range map[string]struct{ spec, reason string }{
		"cpu":      {`nodeName: node, containers: [{name: c, resources: {requests: {cpu: "1000"}}}]`, "OutOfcpu"},
		"memory":   {`nodeName: node, containers: [{name: c, resources: {requests: {memory: 1Pi}}}]`, "OutOfmemory"},
		"device":   {`nodeName: node, containers: [{name: c, resources: {limits: {example.org/gpu: 1}}}]`, "OutOfexample.org/gpu"},
		"selector": {`nodeName: node, nodeSelector: {disk: none}, containers: [{name: c}]`, "NodeAffinity"},
		"hostpid":  {`hostPID: true, containers: [{name: c}]`, "UnexpectedAdmissionError"},
	} {
		w.pod(ctx, t, name, "{"+tt.spec+"}")
		pod := w.until(ctx, t, name, "failed", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
		if pod.Status.Reason != tt.reason || !strings.HasPrefix(pod.Status.Message, "Pod was rejected: ") {
			t.Errorf("%s: %s: %s", name, pod.Status.Reason, pod.Status.Message)
		}
	}
}

// testStreams tests the streaming commands that users type for a running pod.
func (w *world) testStreams(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "streams", testkube.StreamsPod)
	w.ready(ctx, t, "streams")
	w.user.Streams(ctx, t, "streams")
}

// testFigures: the usage of pods is available through the API server, as metrics-server requests it.
func (w *world) testFigures(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "busy", `{containers: [{name: c, command: [sh, -c, "while :; do :; done"], resources: {limits: {cpu: 100m}},
  readinessProbe: {exec: {command: ["true"]}}, volumeMounts: [{name: e, mountPath: /e}]}], volumes: [{name: e, emptyDir: {}}]}`)
	w.ready(ctx, t, "busy")
	for path, all := range map[string][]string{
		"metrics/resource": {`container_memory_working_set_bytes{container="c",namespace="default",pod="busy"}`},
		"stats/summary":    {`"name":"busy"`, `"name":"e"`, `"ephemeral-storage":`, `"logs":`},
		"metrics/cadvisor": {`container_memory_working_set_bytes{container="c",`},
		"metrics/probes": {
			`prober_probe_total{container="c",namespace="default",pod="busy",`, `prober_probe_duration_seconds_count{container="c",`,
		},
		"metrics": {
			`kubelet_running_containers{container_state="running"}`, `kubelet_pod_start_sli_duration_seconds_count `,
			`kubelet_http_requests_total{long_running="false",method="GET",path="metrics",`, `bulkhead_pod_start_phase_seconds_count{phase="shim",`,
			`bulkhead_pods{state="ready"}`, `bulkhead_vm_memory_taken_bytes `,
		},
		"configz": {`"kind":"KubeletConfiguration"`},
		"pods":    {`"name":"busy"`},
	} {
		page := w.typed(ctx, t, "", "get", "--raw", "/api/v1/nodes/node/proxy/"+path)
		for _, want := range all {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %s in %.500s", path, want, page)
			}
		}
	}
}

// testTop: kubectl top shows the usage of a pod and the node from metrics-server, which queries the node.
func (w *world) testTop(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.pod(ctx, t, "burning", `{containers: [{name: c, resources: {limits: {cpu: 100m}},
  command: [sh, -c, "x=$(head -c 4000000 /dev/zero | tr '\\0' x); while :; do :; done"]}]}`)
	w.ready(ctx, t, "burning")
	w.StartMetrics(t, func(documents string) { w.apply(ctx, t, documents) })
	for args, want := range map[string]string{
		"pod burning":              `^burning +[1-9]\d*m +[1-9]\d*Mi *\n$`,
		"pod burning --containers": `^burning +c +[1-9]\d*m +[1-9]\d*Mi *\n$`,
		"node node":                `^node +[1-9]\d*m +\d+% +[1-9]\d*Mi +[1-9]\d*% *\n$`,
	} {
		w.WaitEvery(ctx, t, time.Second, "figures of "+args, func(ctx context.Context) error {
			out, err := w.kubectl(ctx, append(strings.Fields("top "+args), "--no-headers")...).CombinedOutput()
			if err == nil && !regexp.MustCompile(want).Match(out) {
				err = errors.New("the values are not as expected yet")
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
}

// testDebug: kubectl debug adds a container to a running pod. It sees the processes of another container.
func (w *world) testDebug(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "looked-at", `{containers: [{name: c, command: [sleep, "1000"]}]}`)
	w.ready(ctx, t, "looked-at")
	w.typed(ctx, t, "", "debug", "looked-at", "--image="+w.image, "--target=c", "--container=d", "--", "sh", "-c", "ps; exec sleep 1000")
	w.until(ctx, t, "looked-at", "looked at", func(pod *corev1.Pod) bool {
		all := pod.Status.EphemeralContainerStatuses
		return len(all) == 1 && all[0].State.Running != nil
	})
	w.Wait(ctx, t, "its words", func(context.Context) error {
		if out := w.typed(ctx, t, "", "logs", "looked-at", "-c", "d"); !strings.Contains(out, "sleep 1000") {
			return fmt.Errorf("its output is %q", out)
		}
		return nil
	})
}
