package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// newAlone returns a world without a control plane.
func newAlone(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // short, because paths of sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil { // shims run as users of their own
		t.Fatal(err)
	}
	w := &world{Cluster: &testkube.Cluster{Dir: dir}, top: t, libexec: bin()}
	w.prepare(t)
	return w
}

// ask sends a request to the node's API on its socket.
func (w *world) ask(ctx context.Context, path string) (string, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.Dir, "s", "node", "api.sock"))
		},
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node"+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}

// untilAlone waits until the pod with that name satisfies is.
func (w *world) untilAlone(ctx context.Context, t *testing.T, name, what string, is func(*corev1.Pod) bool) (found *corev1.Pod) {
	t.Helper()
	w.Wait(ctx, t, name+" to be "+what, func(ctx context.Context) error {
		text, err := w.ask(ctx, "/pods")
		if err != nil {
			return err
		}
		var list corev1.PodList
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Name == name && is(p) {
				found = p
				return nil
			}
		}
		return fmt.Errorf("there are %s", text)
	})
	return found
}

// expectLogAlone waits until a pod's container has logged exactly words.
func (w *world) expectLogAlone(ctx context.Context, t *testing.T, name, words string) {
	t.Helper()
	w.Wait(ctx, t, "the output of "+name, func(ctx context.Context) error {
		got, err := w.ask(ctx, "/containerLogs/default/"+name+"/c")
		if err == nil && got != words {
			err = fmt.Errorf("its output is %q", got)
		}
		return err
	})
}

// curl queries the node's API about a pod with a container called c, as docs/node.md describes.
func (w *world) curl(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	here := strings.NewReplacer("/run/bulkhead/node/api.sock", filepath.Join(w.Dir, "s", "node", "api.sock"), "web-NODENAME/nginx", name+"/c")
	var answers []string
	for _, line := range lines(t, "curl") {
		out, err := exec.CommandContext(ctx, "sh", "-ec", here.Replace(line)).Output()
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		answers = append(answers, string(out))
	}
	if len(answers) != 2 || !strings.Contains(answers[0], name) || answers[1] != "one\n" {
		t.Errorf("curl prints %q", answers)
	}
}

func isReady(p *corev1.Pod) bool { return condition(p, corev1.PodReady).Status == corev1.ConditionTrue }

// TestManifestsAlone: a node needs only a directory of files. Its pods run, are probed, restarted, and replaced when
// their files change. They outlive the node, and end when their files are removed.
func TestManifestsAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	w := newAlone(t)
	ctx := testdeadline.Context(t, 3*time.Minute)
	const name = "fixed-lonely"
	flags := append(w.documentedNode(t, "--manifests", ""), "--node-name", "lonely")
	start := func() { w.node = w.Run(t, "node", w.program(flags...)) }
	w.manifest(t, "fixed", "one", ", livenessProbe: {exec: {command: [test, '!', -e, /tmp/bad]}, periodSeconds: 1, failureThreshold: 1}")
	if err := os.WriteFile(filepath.Join(w.Manifests(), "half.yaml"), []byte("apiVersion: v1\nkind: P"), 0o600); err != nil {
		t.Fatal(err)
	}
	start()
	first := w.untilAlone(ctx, t, name, "ready", isReady)
	w.expectLogAlone(ctx, t, name, "one\n")
	info, err := os.Stat(filepath.Join(w.Dir, "s", "node", "api.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket of the API: %v, %v", info, err)
	}

	w.curl(ctx, t, name)
	w.node.Kill()
	start()
	after := w.untilAlone(ctx, t, name, "ready after a kill", isReady)
	if after.UID != first.UID || after.Status.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("it is another pod: %v", &after.Status)
	}
	if got, err := execAlone(ctx, w.port(ctx, t), name, "touch", "/tmp/bad"); err != nil {
		t.Fatalf("exec: %q, %v", got, err)
	}
	w.untilAlone(ctx, t, name, "restarted by the probe that goes on", func(p *corev1.Pod) bool {
		return p.UID == first.UID && p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p)
	})

	const fails = ", livenessProbe: {exec: {command: ['false']}, initialDelaySeconds: 2, periodSeconds: 1, failureThreshold: 1}"
	w.manifest(t, "fixed", "two", fails)
	next := w.untilAlone(ctx, t, name, "another pod", func(p *corev1.Pod) bool { return p.UID != first.UID && isReady(p) })
	w.untilAlone(ctx, t, name, "restarted by its probe", func(p *corev1.Pod) bool {
		return p.UID == next.UID && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	if n := w.vms(t); n != 1 {
		t.Errorf("there are %d VMs", n)
	}

	w.removeManifests(t)
	w.Wait(ctx, t, "the end of all pods", func(ctx context.Context) error {
		text, err := w.ask(ctx, "/pods")
		if n := w.vms(t); err != nil || n > 0 || strings.Contains(text, name) {
			return fmt.Errorf("%d VMs, %s, %w", n, text, err)
		}
		return nil
	})
	w.node.Stop(t)
	w.count(t)
}
