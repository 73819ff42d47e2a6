package kube

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// testStreams: exec with a terminal, a copy in and out, attach, logs that are followed, and
// port-forward.
func (w *world) testStreams(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "streams", `{containers: [
  {name: c, command: [sh, -c, "httpd -p 127.0.0.1:8080 -h /etc; exec sleep 1000"]},
  {name: in, stdin: true, stdinOnce: true, command: [sh, -c, "while read l; do echo got $l; done"]}]}`)
	w.ready(ctx, t, "streams")
	t.Run("terminal", func(t *testing.T) {
		out, _, err := w.exec(ctx, "streams",
			corev1.PodExecOptions{Container: "c", TTY: true, Command: []string{"sh", "-c", "tty; stty size; exit 4"}}, strings.NewReader(""))
		if err == nil || !strings.Contains(err.Error(), "exit code 4") || !strings.HasPrefix(out, "/dev/pts/") {
			t.Errorf("%q, %v", out, err)
		}
	})
	t.Run("follow", func(t *testing.T) { w.testFollow(ctx, t) })
	t.Run("copy", func(t *testing.T) { w.testCopy(ctx, t) })
	t.Run("attach", func(t *testing.T) { w.testAttach(ctx, t) })
	t.Run("forward", func(t *testing.T) { w.testForward(ctx, t) })
}

// testFollow reads a log while it is written.
func (w *world) testFollow(ctx context.Context, t *testing.T) {
	log, err := w.Client.CoreV1().Pods(ns).GetLogs("streams", &corev1.PodLogOptions{Container: "c", Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	for _, word := range []string{"one", "two"} {
		_, errs, err := w.exec(ctx, "streams",
			corev1.PodExecOptions{Container: "c", Command: []string{"sh", "-c", "echo " + word + " >/proc/1/fd/1"}}, nil)
		if err != nil {
			t.Fatalf("%v: %s", err, errs)
		}
		if !lines.Scan() || lines.Text() != word {
			t.Errorf("%q, %v, not %s", lines.Text(), lines.Err(), word)
		}
	}
}

// testCopy carries more than fits into any buffer, as kubectl cp does.
func (w *world) testCopy(ctx context.Context, t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
	_, errs, err := w.exec(ctx, "streams",
		corev1.PodExecOptions{Container: "c", Command: []string{"sh", "-c", "cat >/tmp/f"}}, bytes.NewReader(data))
	if err != nil {
		t.Fatalf("in: %v: %s", err, errs)
	}
	out, errs, err := w.exec(ctx, "streams", corev1.PodExecOptions{Container: "c", Command: []string{"cat", "/tmp/f"}}, nil)
	if err != nil || out != string(data) {
		t.Errorf("out: %d of %d bytes, %v: %s", len(out), len(data), err, errs)
	}
}

// testAttach: what is written to a container's input comes back, and is in its log as well.
func (w *world) testAttach(ctx context.Context, t *testing.T) {
	o := corev1.PodAttachOptions{Container: "in", Stdin: true, Stdout: true, Stderr: true}
	r := w.Client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name("streams").SubResource("attach").
		VersionedParams(&o, scheme.ParameterCodec)
	e, err := remotecommand.NewWebSocketExecutor(w.Config, "GET", r.URL().String())
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("a\nb\n"), Stdout: &out, Stderr: &errs})
	if err != nil || out.String() != "got a\ngot b\n" {
		t.Errorf("%q, %q, %v", &out, &errs, err)
	}
	previous := w.until(ctx, t, "streams", "restarted", func(pod *corev1.Pod) bool {
		for _, st := range pod.Status.ContainerStatuses {
			if st.Name == "in" && st.RestartCount > 0 {
				return true
			}
		}
		return false
	})
	if got := w.logs(ctx, t, previous.Name, corev1.PodLogOptions{Container: "in", Previous: true}); got != out.String() {
		t.Errorf("log %q", got)
	}
}

// testForward reads a file of a server that listens on the pod's own loopback only.
func (w *world) testForward(ctx context.Context, t *testing.T) {
	r := w.Client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name("streams").SubResource("portforward")
	dialer, err := portforward.NewSPDYOverWebsocketDialer(r.URL(), w.Config)
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	var errs bytes.Buffer
	f, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, &errs)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	defer func() {
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/hostname", ports[0].Local), nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Close = true
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "streams\n" {
		t.Errorf("the pod's server said %q, %v, %s", body, err, &errs)
	}
}
