package node

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// testRuntimeClasses: the Node lists its handlers. A pod of each documented class runs with the class's overhead. A pod
// with an unknown handler waits, and an event says why.
func (w *world) testRuntimeClasses(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	documented, err := os.ReadFile("../../deploy/kubernetes/runtimeclass.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(ctx, t, string(documented))
	w.apply(ctx, t, `{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: other}, handler: other}`)
	node, err := w.Client.CoreV1().Nodes().Get(ctx, testkube.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var handlers []string
	for _, h := range node.Status.RuntimeHandlers {
		handlers = append(handlers, h.Name)
	}
	classes := []string{"bulkhead", "bulkhead-cold"}
	for _, class := range append(classes, "other") {
		w.pod(ctx, t, class, fmt.Sprintf(`{runtimeClassName: %s, containers: [{name: c, command: [sleep, "1000"]}]}`, class))
	}
	for _, class := range classes {
		if !slices.Contains(handlers, class) {
			t.Errorf("the node has the handlers %v", handlers)
		}
		if pod := w.ready(ctx, t, class); pod.Spec.Overhead.Memory().IsZero() {
			t.Errorf("%s: its overhead is %v", class, pod.Spec.Overhead)
		}
	}
	w.Wait(ctx, t, "the event of the other class", func(ctx context.Context) error {
		if got := w.reasons(ctx, t, "other"); !slices.Contains(got, "FailedCreatePodSandBox") {
			return fmt.Errorf("there are %v", got)
		}
		return nil
	})
	other, err := w.Client.CoreV1().Pods(ns).Get(ctx, "other", metav1.GetOptions{})
	if err != nil || other.Status.Phase != corev1.PodPending {
		t.Errorf("the pod of the other class: %v, %v", err, &other.Status)
	}
}

// testPriorityClasses: a critical pod replaces another pod if there is no room. That pod fails as with a kubelet.
func (w *world) testPriorityClasses(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	w.quiet(ctx, t)
	node, err := w.Client.CoreV1().Nodes().Get(ctx, testkube.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const spec = `{nodeName: node, priorityClassName: %q, containers: [{name: c, command: [sleep, "1000"], resources: {requests: {cpu: %q}}}]}`
	all := node.Status.Allocatable.Cpu()
	w.pod(ctx, t, "lesser", fmt.Sprintf(spec, "", all))
	w.ready(ctx, t, "lesser")
	w.pod(ctx, t, "greater", fmt.Sprintf(spec, "system-node-critical", all))
	w.ready(ctx, t, "greater")
	lesser, err := w.Client.CoreV1().Pods(ns).Get(ctx, "lesser", metav1.GetOptions{})
	if err != nil || lesser.Status.Phase != corev1.PodFailed || lesser.Status.Reason != "Preempting" {
		t.Errorf("the lesser pod: %v, %v", err, &lesser.Status)
	}
	if got := w.reasons(ctx, t, "lesser"); !slices.Contains(got, "Preempting") {
		t.Errorf("its events are %v", got)
	}
	const running = `bulkhead_pods{state="ready"} 1`
	if page := w.typed(ctx, t, "", "get", "--raw", "/api/v1/nodes/node/proxy/metrics"); !strings.Contains(page, running+"\n") {
		t.Errorf("no %s in %s", running, page)
	}
}
