package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
)

// TestNodeOnContainerd: with a control plane, a node's pods run on containerd as on the node's own runtime.
func TestNodeOnContainerd(t *testing.T) {
	testturn.SkipUnless(t, 1, 2)
	if testing.Short() {
		t.Skip("starts a control plane and containerd; make test runs it in its second pass")
	}
	w := newControlPlane(t)
	w.startContainerd(testdeadline.Context(t, time.Minute), t)
	w.startNode(t)
	t.Run("static", w.testStatic)
	t.Run("pod", w.testPod)
	t.Run("same name", w.testSameName)
	t.Run("late secret", w.testLateSecret)
	t.Run("job", w.testJob)
	t.Run("restart", w.testRestart)
}

// port returns a TCP port on loopback that forwards to the node's API, for clients without unix sockets.
func (w *world) port(ctx context.Context, t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = l.Close() })
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.Dir, "s", "node", "api.sock"))
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				all.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // the end of either direction ends both
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	return l.Addr().String()
}

// execAlone runs a command in a pod's container through port and returns its output.
func execAlone(ctx context.Context, at, pod string, command ...string) (string, error) {
	u := &url.URL{Scheme: "http", Host: at, Path: "/exec/default/" + pod + "/c", RawQuery: url.Values{
		corev1.ExecCommandParam: command, corev1.ExecStdoutParam: {"1"}, corev1.ExecStderrParam: {"1"},
	}.Encode()}
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: "http://" + at}, "POST", u)
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
	return out.String() + errs.String(), err
}

// TestEndpoint: the node's pods run on containerd, as another CRI runtime, as on the node's own runtime.
func TestEndpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("starts containerd; make test runs it in its second pass")
	}
	w := newAlone(t)
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.startContainerd(ctx, t)
	const name = "fixed-lonely"
	start := func() {
		w.node = w.Run(t, "node", w.program("--node-name", "lonely"))
	}
	w.manifest(t, "fixed", "one", ", livenessProbe: {exec: {command: [test, '!', -e, /tmp/bad]}, periodSeconds: 1, failureThreshold: 1}")
	start()
	first := w.untilAlone(ctx, t, name, "ready", isReady)
	w.expectLogAlone(ctx, t, name, "one\n")
	if first.Status.PodIP == "" {
		t.Errorf("it has no address: %v", &first.Status)
	}
	if got, err := w.ask(ctx, "/stats/summary"); err != nil || !strings.Contains(got, name) {
		t.Errorf("its usage: %s, %v", got, err)
	}
	at := w.port(ctx, t)
	run := func(command ...string) (string, error) { return execAlone(ctx, at, name, command...) }
	if got, err := run("hostname"); err != nil || got != name+"\n" {
		t.Errorf("exec: %q, %v", got, err)
	}
	if got, err := run("sh", "-c", "echo two >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "exit code 3") || got != "two\n" {
		t.Errorf("exec: %q, %v", got, err)
	}

	w.node.Kill()
	start()
	after := w.untilAlone(ctx, t, name, "ready after a kill", isReady)
	if after.Status.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("it is another pod: %v", &after.Status)
	}
	if got, err := run("touch", "/tmp/bad"); err != nil {
		t.Errorf("exec: %q, %v", got, err)
	}
	w.untilAlone(ctx, t, name, "restarted by its probe", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p)
	})

	w.removeManifests(t)
	w.Wait(ctx, t, "the end of all pods", func(ctx context.Context) error {
		text, err := w.ask(ctx, "/pods")
		if n := w.sandboxes(t); err != nil || n > 0 || strings.Contains(text, name) {
			return fmt.Errorf("%d pods, %s, %w", n, text, err)
		}
		return nil
	})
	w.node.Stop(t)
	w.count(t)
}
