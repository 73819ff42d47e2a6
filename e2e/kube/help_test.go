package kube

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

// ns is the namespace of all pods.
const ns = "default"

// runtime returns another CRI client besides the kubelet.
func (w *world) runtime(t testing.TB) runtimeapi.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///cri", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", w.socket())
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// decode parses a manifest.
func decode[T any](t testing.TB, manifest string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	return object
}

// pod creates a pod with a specification, and deletes it at the test's end.
func (w *world) pod(ctx context.Context, t testing.TB, name, spec string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *decode[corev1.PodSpec](t, spec)}
	grace := int64(2)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	for _, all := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range all {
			all[i].Image = cmp.Or(all[i].Image, w.image)
		}
	}
	if _, err := w.Client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := w.Client.CoreV1().Pods(ns).Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
		if err != nil && !errors.IsNotFound(err) {
			t.Errorf("delete pod %s: %v", name, err)
		}
	})
}

// ready waits until a pod is ready.
func (w *world) ready(ctx context.Context, t testing.TB, name string) *corev1.Pod {
	t.Helper()
	return w.until(ctx, t, name, "ready", func(pod *corev1.Pod) bool {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return true
			}
		}
		return false
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

// logs returns a container's log so far.
func (w *world) logs(ctx context.Context, t testing.TB, pod string, o corev1.PodLogOptions) string {
	t.Helper()
	out, err := w.Client.CoreV1().Pods(ns).GetLogs(pod, &o).DoRaw(ctx)
	if err != nil {
		t.Errorf("logs of %s: %v", pod, err)
	}
	return string(out)
}

// expectLog waits until a container has logged exactly words.
func (w *world) expectLog(ctx context.Context, t testing.TB, pod string, o corev1.PodLogOptions, words string) {
	t.Helper()
	w.Wait(ctx, t, "the output of "+pod, func(ctx context.Context) error {
		return is(words, func() (string, error) {
			out, err := w.Client.CoreV1().Pods(ns).GetLogs(pod, &o).DoRaw(ctx)
			return string(out), err
		})
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

// typed runs a user's command, which must succeed, and returns its output.
func (w *world) typed(ctx context.Context, t testing.TB, in string, args ...string) string {
	t.Helper()
	return w.user.Typed(ctx, t, in, args...)
}

// events returns the warnings about a pod, or about all if pod is empty, one per line.
func (w *world) events(ctx context.Context, pod string) (string, error) {
	o := metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning}
	if pod != "" {
		o.FieldSelector += ",involvedObject.name=" + pod
	}
	list, err := w.Client.CoreV1().Events(ns).List(ctx, o)
	var out strings.Builder
	for _, e := range list.Items {
		fmt.Fprintf(&out, "%s: %s: %s (%d times)\n", e.InvolvedObject.Name, e.Reason, e.Message, max(e.Count, 1))
	}
	return out.String(), err
}

// sorted returns a text with sorted lines.
func sorted(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
