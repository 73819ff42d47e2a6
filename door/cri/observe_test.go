package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// lines is a log that is safe for concurrent writes.
type lines struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.String()
}

// freeAddress returns an address that is not in use.
func freeAddress(ctx context.Context, t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// get reads a page of the metrics server.
func get(ctx context.Context, t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestObserved: calls are counted, and logged with the names of their pods and containers but without secrets.
func TestObserved(t *testing.T) {
	ctx := testdeadline.Context(t, 30*time.Second)
	o := fakeOptions(t, enginetest.New())
	log := &lines{}
	o.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Metrics = freeAddress(ctx, t)
	c := serveDoor(t, o)
	config := critest.Pod("p")
	config.Annotations = map[string]string{"a": "hunter2"}
	pod := c.Run(ctx, t, config)
	with := critest.Container("c", "sh", "-c", "hunter2")
	with.Envs = []*runtimeapi.KeyValue{{Key: "PASSWORD", Value: []byte("hunter2")}}
	container := c.Start(ctx, t, pod, with, config)
	if _, err := c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container, Verbose: true}); err != nil {
		t.Error(err)
	}
	pull := &runtimeapi.PullImageRequest{
		Image: &runtimeapi.ImageSpec{Image: "127.0.0.1:1/none:1"},
		Auth:  &runtimeapi.AuthConfig{Username: "somebody", Password: "hunter2"},
	}
	if _, err := c.Images.PullImage(ctx, pull); err == nil {
		t.Error("pulled from a missing registry")
	}
	if _, err := c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: critest.Pod("q"), RuntimeHandler: "runc"}); err == nil {
		t.Error("run by an unknown handler")
	}
	host := critest.Pod("r")
	host.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE},
	}
	if _, err := c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: host}); err == nil {
		t.Error("run with the host's processes")
	}
	status, page := get(ctx, t, "http://"+o.Metrics+"/metrics")
	for _, want := range []string{
		`bulkhead_pods{state="ready"} 1`, `bulkhead_containers{state="running"} 1`,
		`bulkhead_pod_starts_total{result="ok",vm="clone"} 1`, `bulkhead_pod_not_forked_total{reason="off"} 1`,
		`bulkhead_pod_start_phase_seconds_count{phase="network",vm="clone"} 1`, `bulkhead_pod_start_seconds_count{vm="clone"} 1`,
		`grpc_server_handled_total{grpc_code="OK",grpc_method="RunPodSandbox",grpc_service="runtime.v1.RuntimeService"} 1`,
		`grpc_server_handled_total{grpc_code="InvalidArgument",grpc_method="RunPodSandbox",grpc_service="runtime.v1.RuntimeService"} 1`,
		`grpc_server_handling_seconds_count{grpc_method="PullImage",grpc_service="runtime.v1.ImageService"} 1`,
		"bulkhead_reaped_total{result=\"failed\"} 0", "process_resident_memory_bytes ", "go_goroutines ",
	} {
		if status != http.StatusOK || !strings.Contains(page, want+"\n") && !strings.HasSuffix(want, " ") || !strings.Contains(page, want) {
			t.Errorf("%d, without %s", status, want)
		}
	}
	if status, _ := get(ctx, t, "http://"+o.Metrics+"/"); status != http.StatusNotFound {
		t.Errorf("another page: %d", status)
	}
	http.DefaultClient.CloseIdleConnections()
	c.Remove(ctx, t, pod)
	text := log.String()
	if strings.Contains(text, "hunter2") {
		t.Errorf("the log has secrets: %s", text)
	}
	for _, want := range []map[string]any{
		{"method": "RunPodSandbox", "level": "INFO", "pod": pod, "namespace": "default", "name": "p"},
		{"method": "CreateContainer", "level": "INFO", "pod": pod, "container": container, "name": "c"},
		{"method": "StartContainer", "level": "INFO", "container": container},
		{"method": "ContainerStatus", "level": "DEBUG", "container": container},
		{"method": "PullImage", "level": "WARN", "image": "127.0.0.1:1/none:1"},
		{"method": "RunPodSandbox", "level": "WARN", "name": "q", "code": codes.InvalidArgument.String()},
		{"method": "RunPodSandbox", "level": "WARN", "name": "r", "code": codes.Unimplemented.String()},
		{"method": "RemovePodSandbox", "level": "INFO", "pod": pod},
	} {
		if !logged(t, text, want) {
			t.Errorf("the log has no %v: %s", want, text)
		}
	}
}

// logged reports whether a line of a log contains all of want.
func logged(t *testing.T, text string, want map[string]any) bool {
	t.Helper()
	for line := range strings.Lines(text) {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all := got["msg"] == "call" && got["took"] != nil
		for key, value := range want {
			all = all && got[key] == value
		}
		if all {
			return true
		}
	}
	return false
}

// TestNoMetrics: an unusable metrics address ends the door.
func TestNoMetrics(t *testing.T) {
	ctx := testdeadline.Context(t, 30*time.Second)
	o := fakeOptions(t, enginetest.New())
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o.Metrics = l.Addr().String()
	if err := Run(ctx, o, func() { t.Error("it serves") }); err == nil || !strings.Contains(err.Error(), "serve metrics") {
		t.Errorf("%v", err)
	}
}
