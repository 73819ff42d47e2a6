package node

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/yaml"
)

// ns is the namespace of all pods.
const ns = "default"

// pod creates a pod with a specification, and deletes it at the test's end.
func (w *world) pod(ctx context.Context, t testing.TB, name, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatalf("%v in\n%s", err, spec)
	}
	grace := int64(2)
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		pod.Spec.TerminationGracePeriodSeconds = &grace
	}
	for _, all := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			all[i].Image = cmp.Or(all[i].Image, w.image)
		}
	}
	made, err := w.Client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := w.Client.CoreV1().Pods(ns).Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
		if err != nil && !errors.IsNotFound(err) {
			t.Errorf("delete pod %s: %v", name, err)
		}
	})
	return made
}

// condition returns a pod's condition, or an empty one.
func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// ready waits until a pod is ready.
func (w *world) ready(ctx context.Context, t testing.TB, name string) *corev1.Pod {
	t.Helper()
	return w.until(ctx, t, name, "ready", func(pod *corev1.Pod) bool {
		return condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
	})
}

// until waits until a pod satisfies is.
func (w *world) until(ctx context.Context, t testing.TB, name, what string, is func(*corev1.Pod) bool) (pod *corev1.Pod) {
	t.Helper()
	w.Wait(ctx, t, fmt.Sprintf("pod %s to be %s", name, what), func(ctx context.Context) (err error) {
		if pod, err = w.Client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !is(pod) {
			return fmt.Errorf("its status is %s", &pod.Status)
		}
		return nil
	})
	return pod
}

// expectLog waits until a container has logged exactly words.
func (w *world) expectLog(ctx context.Context, t testing.TB, pod string, o corev1.PodLogOptions, words string) {
	t.Helper()
	w.Wait(ctx, t, "the output of "+pod, func(ctx context.Context) error {
		out, err := w.Client.CoreV1().Pods(ns).GetLogs(pod, &o).DoRaw(ctx)
		if err == nil && string(out) != words {
			err = fmt.Errorf("its output is %q, not %q", out, words)
		}
		return err
	})
}

// exec runs a command in a container, as kubectl does.
func (w *world) exec(ctx context.Context, pod string, o corev1.PodExecOptions, in io.Reader) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	o.Stdin, o.Stdout, o.Stderr = in != nil, true, !o.TTY
	r := w.Client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&o, scheme.ParameterCodec)
	e, err := remotecommand.NewWebSocketExecutor(w.Config, "GET", r.URL().String())
	if err != nil {
		return "", "", err
	}
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: &errs, Tty: o.TTY})
	return out.String(), errs.String(), err
}

// kubectl returns a command that runs kubectl as the user.
func (w *world) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return w.user.Kubectl(ctx, args...)
}

// typed runs a user's command, which must succeed, and returns its output.
func (w *world) typed(ctx context.Context, t testing.TB, in string, args ...string) string {
	t.Helper()
	return w.user.Typed(ctx, t, in, args...)
}

// reasons returns the reasons of a pod's events.
func (w *world) reasons(ctx context.Context, t testing.TB, pod string) (all []string) {
	t.Helper()
	list, err := w.Client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		t.Error(err)
		return nil
	}
	for _, e := range list.Items {
		all = append(all, e.Reason)
	}
	return all
}

// vms returns the number of VMs on the host.
func (w *world) vms(t testing.TB) int {
	t.Helper()
	if w.containerd != "" {
		return w.sandboxes(t)
	}
	list, err := os.ReadDir(filepath.Join(w.data(), "sandboxes"))
	if err != nil {
		t.Error(err)
	}
	return len(list)
}
