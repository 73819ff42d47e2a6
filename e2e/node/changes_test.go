package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// testServices: a pod has the variables of the Services in its namespace. A pod without service links has only the API
// server's.
func (w *world) testServices(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "my-web"}}
	service.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 8080}}
	made, err := w.Client.CoreV1().Services(ns).Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const command = `command: [sh, -c, "echo $MY_WEB_SERVICE_HOST $MY_WEB_PORT_8080_TCP_PORT; echo $KUBERNETES_SERVICE_PORT; exec sleep 1000"]`
	w.pod(ctx, t, "linked", `{containers: [{name: c, `+command+`}]}`)
	w.pod(ctx, t, "unlinked", `{enableServiceLinks: false, containers: [{name: c, `+command+`}]}`)
	w.expectLog(ctx, t, "linked", corev1.PodLogOptions{}, made.Spec.ClusterIP+" 8080\n443\n")
	w.expectLog(ctx, t, "unlinked", corev1.PodLogOptions{}, "\n443\n")
	for _, name := range []string{"linked", "unlinked"} {
		w.typed(ctx, t, "", "delete", "pod", name, "--grace-period=1")
	}
	if err := w.Client.CoreV1().Services(ns).Delete(ctx, "my-web", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// testChanges changes a running pod. Its labels and annotations change in its volume, a container is restarted with
// another image, and its resources change in place.
func (w *world) testChanges(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.pod(ctx, t, "changing", `{volumes: [{name: v, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}},
  {path: annotations, fieldRef: {fieldPath: metadata.annotations}}]}}],
containers: [{name: c, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /v}],
  resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 200m, memory: 128Mi}}}, {name: other, command: [sleep, "1000"]}]}`)
	w.ready(ctx, t, "changing")
	sees := func(what string, command []string, want string) {
		t.Helper()
		w.Wait(ctx, t, what, func(ctx context.Context) error {
			out, errs, err := w.exec(ctx, "changing", corev1.PodExecOptions{Container: "c", Command: command}, nil)
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("it is %q, %s", out, errs)
			}
			return err
		})
	}
	w.typed(ctx, t, "", "label", "pod", "changing", "tier=new")
	sees("the label", []string{"cat", "/v/labels"}, `tier="new"`)
	w.typed(ctx, t, "", "annotate", "pod", "changing", "note=seen")
	sees("the annotation", []string{"cat", "/v/annotations"}, `note="seen"`)

	w.typed(ctx, t, "", "patch", "pod", "changing", "--subresource", "resize", "--patch",
		`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"150m","memory":"64Mi"},"limits":{"cpu":"300m","memory":"192Mi"}}}]}}`)
	pod := w.until(ctx, t, "changing", "resized", func(pod *corev1.Pod) bool {
		c := pod.Status.ContainerStatuses[0]
		has, granted := c.Resources.Limits[corev1.ResourceMemory], c.AllocatedResources[corev1.ResourceCPU]
		return has.String() == "192Mi" && granted.String() == "150m" && condition(pod, corev1.PodResizeInProgress).Status == "" &&
			pod.Status.ObservedGeneration == pod.Generation
	})
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("it was restarted %d times", n)
	}
	sees("the limit", []string{"cat", "/sys/fs/cgroup/memory.max"}, "201326592")
	// Another pod uses nearly all of the node, so a larger resize must wait for its end.
	node, err := w.Client.CoreV1().Nodes().Get(ctx, testkube.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	most := node.Status.Allocatable.Cpu().MilliValue() - 500
	w.pod(ctx, t, "most", fmt.Sprintf(`{containers: [{name: c, command: [sleep, "1000"], resources: {requests: {cpu: %dm}}}]}`, most))
	w.ready(ctx, t, "most")
	w.typed(ctx, t, "", "patch", "pod", "changing", "--subresource", "resize", "--patch",
		`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"800m"},"limits":{"cpu":"800m"}}}]}}`)
	pod = w.until(ctx, t, "changing", "deferred", func(pod *corev1.Pod) bool {
		return condition(pod, corev1.PodResizePending).Reason == corev1.PodReasonDeferred
	})
	if has := pod.Status.ContainerStatuses[0].Resources.Limits[corev1.ResourceCPU]; has.String() != "300m" {
		t.Errorf("its resources are %s", &has)
	}
	w.typed(ctx, t, "", "delete", "pod", "most", "--grace-period=1")
	w.until(ctx, t, "changing", "resized", func(pod *corev1.Pod) bool {
		has := pod.Status.ContainerStatuses[0].Resources.Limits[corev1.ResourceCPU]
		return has.String() == "800m" && condition(pod, corev1.PodResizePending).Status == ""
	})

	w.typed(ctx, t, "", "set", "image", "pod/changing", "c="+w.second)
	pod = w.until(ctx, t, "changing", "restarted", func(pod *corev1.Pod) bool {
		c := pod.Status.ContainerStatuses[0]
		return c.RestartCount == 1 && c.State.Running != nil && c.Image == w.second
	})
	if c := pod.Status.ContainerStatuses[1]; c.RestartCount != 0 || c.State.Running == nil {
		t.Errorf("the other container: %+v", c)
	}
	w.typed(ctx, t, "", "delete", "pod", "changing", "--grace-period=1")
}

// testReadinessGates: a pod becomes ready only when another client sets its gates' conditions. The node's reports do
// not remove conditions of other clients, with or without a gate.
func (w *world) testReadinessGates(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	const gate, other = "example.com/gate", "example.com/other"
	w.pod(ctx, t, "gated", `{readinessGates: [{conditionType: `+gate+`}],
  containers: [{name: c, command: [sh, -c, "while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 1"]}]}`)
	says := func(kind corev1.PodConditionType, status corev1.ConditionStatus) {
		t.Helper()
		patch := fmt.Sprintf(`{"status": {"conditions": [{"type": %q, "status": %q, "reason": "Said"}]}}`, kind, status)
		_, err := w.Client.CoreV1().Pods(ns).Patch(
			ctx, "gated", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
	}
	has := func(pod *corev1.Pod, kind corev1.PodConditionType) {
		t.Helper()
		if c := condition(pod, kind); c.Status != corev1.ConditionTrue || c.Reason != "Said" {
			t.Errorf("%s: %+v", kind, c)
		}
	}
	unready := func(pod *corev1.Pod) bool {
		return condition(pod, corev1.ContainersReady).Status == corev1.ConditionTrue &&
			condition(pod, corev1.PodReady).Reason == "ReadinessGatesNotReady"
	}
	pod := w.until(ctx, t, "gated", "ready but for its gate", unready)
	if c := condition(pod, corev1.PodReady); c.Status != corev1.ConditionFalse {
		t.Errorf("without its gate: %+v", c)
	}
	says(other, corev1.ConditionTrue)
	says(gate, corev1.ConditionTrue)
	has(w.ready(ctx, t, "gated"), other)
	if _, errs, err := w.exec(ctx, "gated", corev1.PodExecOptions{Command: []string{"touch", "/tmp/go"}}, nil); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	pod = w.until(ctx, t, "gated", "started again", func(pod *corev1.Pod) bool {
		return pod.Status.ContainerStatuses[0].RestartCount == 1 && condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
	})
	has(pod, gate)
	has(pod, other)
	says(gate, corev1.ConditionFalse)
	has(w.until(ctx, t, "gated", "held back by its gate", unready), other)
}

// testEviction: a pod that exceeds its limit of ephemeral storage is evicted with a message. Its neighbour runs on.
func (w *world) testEviction(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "modest", `{containers: [{name: c, command: [sh, -c, "head -c 1048576 /dev/zero >/f; exec sleep 1000"],
  resources: {limits: {ephemeral-storage: 8Mi}}}]}`)
	w.pod(ctx, t, "writes", `{containers: [{name: c, command: [sh, -c, "head -c 16777216 /dev/zero >/f; exec sleep 1000"],
  resources: {limits: {ephemeral-storage: 8Mi}}}]}`)
	w.pod(ctx, t, "keeps", `{volumes: [{name: e, emptyDir: {}}],
  containers: [{name: c, command: [sh, -c, "head -c 16777216 /dev/zero >/e/f; exec sleep 1000"], volumeMounts: [{name: e, mountPath: /e}],
  resources: {limits: {ephemeral-storage: 8Mi}}}]}`)
	for _, name := range []string{"writes", "keeps"} {
		pod := w.until(ctx, t, name, "evicted", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
		const why = "Pod ephemeral local storage usage exceeds the total limit of containers 8Mi. "
		if c := condition(pod, corev1.DisruptionTarget); pod.Status.Reason != "Evicted" || c.Status == corev1.ConditionTrue ||
			!strings.Contains(pod.Status.Message, why) { // the pod's own limit does not count as a disruption
			t.Errorf("%s: %s: %s, %+v", name, pod.Status.Reason, pod.Status.Message, c)
		}
	}
	w.Wait(ctx, t, "the event", func(ctx context.Context) error {
		if got := w.reasons(ctx, t, "writes"); !slices.Contains(got, "Evicted") {
			return fmt.Errorf("there are %v", got)
		}
		return nil
	})
	if modest := w.ready(ctx, t, "modest"); modest.Status.Reason != "" || modest.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the other pod: %+v", modest.Status)
	}
	w.Wait(ctx, t, "the Node to list the images", func(ctx context.Context) error {
		node, err := w.Client.CoreV1().Nodes().Get(ctx, testkube.NodeName, metav1.GetOptions{})
		own := func(i corev1.ContainerImage) bool { return slices.Contains(i.Names, w.image) }
		if err == nil && !slices.ContainsFunc(node.Status.Images, own) {
			err = fmt.Errorf("there are %v", node.Status.Images)
		}
		return err
	})
	for _, name := range []string{"writes", "keeps", "modest"} {
		w.typed(ctx, t, "", "delete", "pod", name, "--grace-period=1")
	}
}
