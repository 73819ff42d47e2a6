package cri

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestSequence does the usual CRI calls for a pod in a VM: run, create, start, exec, logs, port-forward, stats, stop,
// remove. The door restarts in between.
func TestSequence(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	o := doorOptions(enginetest.Real(t, enginetest.Clones))
	logs := t.TempDir()
	o.Logs = append(o.Logs, logs)
	config := critest.Pod("p")
	config.LogDirectory = logs
	var spans *lines
	o.Traces, spans = collect(t)

	var pod, container string
	t.Run("one door", func(t *testing.T) {
		c := serveDoor(t, o)
		pod = c.Run(ctx, t, config)
		words := `echo words; httpd -p 127.0.0.1:8080 -h /etc; exec sleep 1000`
		container = c.Start(ctx, t, pod, critest.Container("c", "sh", "-c", words), config)
		execs(ctx, t, c, container)
	})
	const service = "runtime.v1.RuntimeService/"
	below := parents(t, spans)
	for _, want := range []string{
		service + "RunPodSandbox > engine shim", "engine start > machine await", "engine start > machine configure",
		service + "RunPodSandbox > agent configure", "agent configure > guest reseed",
		service + "CreateContainer > agent create", "agent create > guest mount the root", "agent create > guest run the launcher",
		service + "StartContainer > agent start", service + "ExecSync > agent exec", "agent exec > guest run the launcher",
	} {
		if !below[want] {
			t.Errorf("no span %s among %v", want, slices.Sorted(maps.Keys(below)))
		}
	}
	o.Traces, o.Metrics = "", freeAddress(ctx, t)
	c := serveDoor(t, o)
	st, err := c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container})
	if err != nil || st.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("after another door: %v, %v", st, err)
	}
	if log, err := os.ReadFile(filepath.Join(logs, "c.log")); err != nil || !bytes.HasSuffix(log, []byte(" stdout F words\n")) {
		t.Errorf("log %q, %v", log, err)
	}
	execs(ctx, t, c, container)
	forwards(ctx, t, c, pod)
	stats, err := c.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: pod})
	if err != nil || stats.GetStats().GetLinux().GetMemory().GetWorkingSetBytes().GetValue() == 0 {
		t.Errorf("stats: %v, %v", stats, err)
	}
	_, page := get(ctx, t, "http://"+o.Metrics+"/metrics")
	http.DefaultClient.CloseIdleConnections()
	const ready, running = `bulkhead_pods{state="ready"} 1`, `bulkhead_containers{state="running"} 1`
	if !strings.Contains(page, ready+"\n") || !strings.Contains(page, running+"\n") ||
		strings.Contains(page, "given_bytes 0\n") || strings.Contains(page, "taken_bytes 0\n") {
		t.Errorf("metrics: %s", page)
	}
	_, err = c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod})
	if err == nil {
		_, err = c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod})
	}
	if err != nil {
		t.Fatal(err)
	}
	if pods, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); err != nil || len(pods.GetItems()) > 0 {
		t.Errorf("left: %v, %v", pods, err)
	}
}

// execs runs a command with ExecSync and with Exec.
func execs(ctx context.Context, t *testing.T, c critest.Client, container string) {
	t.Helper()
	cmd := []string{"sh", "-c", "read x; echo $x; echo two >&2; exit 3"}
	res, err := c.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: cmd})
	if err != nil || res.GetExitCode() != 3 || string(res.GetStderr()) != "two\n" {
		t.Errorf("exec sync: %v, %v", res, err)
	}
	at, err := c.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: container, Cmd: cmd, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	e, err := remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, "GET", at.GetUrl(), "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("one\n"), Stdout: &stdout, Stderr: &stderr})
	if err == nil || !strings.Contains(err.Error(), "exit code 3") || stdout.String() != "one\n" || stderr.String() != "two\n" {
		t.Errorf("exec: %q, %q, %v", &stdout, &stderr, err)
	}
}

// forwards reads a file from the pod's web server, which listens only on the pod's loopback.
func forwards(ctx context.Context, t *testing.T, c critest.Client, pod string) {
	t.Helper()
	res, err := c.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: pod, Port: []int32{8080}})
	if err != nil {
		t.Fatal(err)
	}
	ports, end := critest.Forward(ctx, t, res.GetUrl(), ":8080")
	defer end()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/hostname", ports[0].Local), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if body, err := io.ReadAll(got.Body); err != nil || string(body) != "p\n" {
		t.Errorf("the pod's server said %q, %v", body, err)
	}
	http.DefaultClient.CloseIdleConnections()
}
