package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// manifest atomically writes the file of a pod with that name. Its container prints words and then sleeps.
func (w *world) manifest(t *testing.T, name, words, more string) {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {static: "yes"}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: %q, command: [sh, -c, "echo %s; exec sleep 1000"]%s}
`, name, w.image, words, more)
	path := filepath.Join(w.Manifests(), name+".yaml")
	hidden := filepath.Join(w.Manifests(), "."+name)
	if err := errors.Join(os.WriteFile(hidden, []byte(text), 0o600), os.Rename(hidden, path)); err != nil {
		t.Fatal(err)
	}
}

// removeManifests removes all static pods.
func (w *world) removeManifests(t *testing.T) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(w.Manifests(), "*"))
	if err != nil {
		t.Error(err)
	}
	for _, path := range all {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// testStatic: a file becomes a static pod with a mirror in the API server, and kubectl reaches it. The mirror is
// created again after a deletion, replaced when the file changes, and removed with the file.
func (w *world) testStatic(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.quiet(ctx, t)
	name := "fixed-" + testkube.NodeName
	w.manifest(t, "fixed", "one", "")
	first := w.ready(ctx, t, name)
	if control.MirrorOf(first) == "" || first.Annotations[control.SourceAnnotation] != "file" || first.Labels["static"] != "yes" ||
		first.Spec.NodeName != testkube.NodeName || first.Status.PodIP == "" {
		t.Errorf("its mirror is %v, %v", first.ObjectMeta, &first.Status)
	}
	if got := w.typed(ctx, t, "", "get", "pod", name, "-o", "name"); got != "pod/"+name+"\n" {
		t.Errorf("kubectl get: %q", got)
	}
	w.expectLog(ctx, t, name, corev1.PodLogOptions{}, "one\n")
	if got := w.typed(ctx, t, "", "logs", name); got != "one\n" {
		t.Errorf("kubectl logs: %q", got)
	}
	if got := w.typed(ctx, t, "", "exec", name, "--", "cat", "/etc/hostname"); got != name+"\n" {
		t.Errorf("kubectl exec: %q", got)
	}
	api := w.Client.CoreV1().Pods(ns)
	if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := w.until(ctx, t, name, "there again", func(p *corev1.Pod) bool {
		return p.UID != first.UID && condition(p, corev1.PodReady).Status == corev1.ConditionTrue
	})
	before, after := first.Status.ContainerStatuses[0].ContainerID, again.Status.ContainerStatuses[0].ContainerID
	if control.MirrorOf(again) != control.MirrorOf(first) || before != after {
		t.Errorf("the mirror shows another pod: %v", &again.Status)
	}
	w.manifest(t, "fixed", "two", "")
	w.until(ctx, t, name, "another pod", func(p *corev1.Pod) bool {
		return control.MirrorOf(p) != control.MirrorOf(first) && condition(p, corev1.PodReady).Status == corev1.ConditionTrue
	})
	w.expectLog(ctx, t, name, corev1.PodLogOptions{}, "two\n")
	if n := w.vms(t); n != 1 {
		t.Errorf("there are %d VMs", n)
	}
	w.removeManifests(t)
	w.Wait(ctx, t, "the end of the static pod", func(ctx context.Context) error {
		_, err := api.Get(ctx, name, metav1.GetOptions{})
		if n := w.vms(t); !apierrors.IsNotFound(err) || n > 0 {
			return fmt.Errorf("its mirror: %w; %d VMs", err, n)
		}
		return nil
	})
	w.testInvalid(ctx, t)
}

// testInvalid: an event of the Node reports a file that is not a valid static pod.
func (w *world) testInvalid(ctx context.Context, t *testing.T) {
	t.Helper()
	w.manifest(t, "refers", "never", ", envFrom: [{secretRef: {name: s}}]")
	defer w.removeManifests(t)
	w.Wait(ctx, t, "the event", func(ctx context.Context) error {
		list, err := w.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "reason=InvalidManifest"})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Node" && strings.Contains(e.Message, "static pods may not reference secrets") {
				return nil
			}
		}
		return fmt.Errorf("there are %d others", len(list.Items))
	})
}
