package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/events"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/service"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// rig is the services over a fake sandbox, with clients.
type rig struct {
	fake      *fake
	hub       *events.Hub
	files     *fdpass.Store
	sandbox   sandboxv1.TTRPCSandboxService
	task      taskv3.TTRPCTaskService
	extension shimv1.ExtensionClient
	streams   *stream.Server
	services  *service.Services
	console   *service.Console
	shutdown  chan struct{}
	dir       string
}

func start(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "svc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{fake: newFake(), hub: &events.Hub{}, files: &fdpass.Store{}, shutdown: make(chan struct{}, 9), dir: dir}
	streams := stream.NewServer()
	r.streams = streams
	if err := os.WriteFile(filepath.Join(dir, "console"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	console, err := service.OpenConsole(filepath.Join(dir, "console"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { console.Close() })
	r.console = console
	services := service.New(service.Options{
		ID: "pod", Sandbox: r.fake, Hub: r.hub, Files: r.files, Streams: streams,
		StreamAddress: filepath.Join(dir, "stream"), Console: console,
		Shutdown: func() { r.shutdown <- struct{}{} }, Logger: slog.New(slog.DiscardHandler),
	})
	r.services = services
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	services.Register(server)
	go server.Serve(context.Background(), listen(t, filepath.Join(dir, "api")))
	go streams.Serve(listen(t, filepath.Join(dir, "stream")))
	conn, err := net.Dial("unix", filepath.Join(dir, "api"))
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() {
		client.Close()
		r.hub.Close()
		services.Close()
		server.Close()
		streams.Close()
		r.files.Close()
	})
	r.sandbox, r.task = sandboxv1.NewTTRPCSandboxClient(client), taskv3.NewTTRPCTaskClient(client)
	r.extension = shimv1.NewExtensionClient(client)
	return r
}

func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (r *rig) file(t *testing.T, name string) {
	t.Helper()
	f, err := os.CreateTemp(r.dir, "file")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.files.Add(name, f); err != nil {
		t.Fatal(err)
	}
}

// create creates container id with an attached stdin and stdout.
func (r *rig) create(t *testing.T, id string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "config.json"), []byte(`{"ociVersion":"1.0.2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r.file(t, "disk")
	_, err := r.task.Create(t.Context(), &taskv3.CreateTaskRequest{
		ID: id, Bundle: r.dir, Stdin: "stream:", Stdout: "stream:",
		Rootfs: []*types.Mount{{Type: "bulkhead-disk", Source: "image", Options: []string{"file=disk"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: %v, want %v: %v", what, got, want, err)
	}
}

func TestSandbox(t *testing.T) {
	r, ctx := start(t), t.Context()
	config, _ := json.Marshal(sandbox.Config{ID: "pod", Name: "web"})
	_, err := r.sandbox.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{SandboxID: "another"})
	wantCode(t, "another pod's id", err, codes.NotFound)
	_, err = r.sandbox.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{SandboxID: "pod"})
	wantCode(t, "no options", err, codes.InvalidArgument)
	r.file(t, layout.Scratch)
	_, err = r.sandbox.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		SandboxID: "pod", Options: &anypb.Any{TypeUrl: layout.ConfigType, Value: config},
	})
	wantCode(t, "create", err, codes.OK)
	if got := r.fake.noted(); !slices.Equal(got, []string{"scratch", "create"}) || r.fake.config.Name != "web" {
		t.Errorf("calls %q, config %+v", got, r.fake.config)
	}
	_, err = r.sandbox.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxID: "pod"})
	wantCode(t, "start", err, codes.OK)
	st, err := r.sandbox.SandboxStatus(ctx, &sandboxv1.SandboxStatusRequest{SandboxID: "pod", Verbose: true})
	if err != nil || st.State != "SANDBOX_READY" || st.Info["memoryMiB"] != "512" {
		t.Errorf("status %v, %v", st, err)
	}
	platform, err := r.sandbox.Platform(ctx, &sandboxv1.PlatformRequest{SandboxID: "pod"})
	if err != nil || platform.Platform.OS != "linux" {
		t.Errorf("platform %v, %v", platform, err)
	}
	_, err = r.sandbox.UpdateSandbox(ctx, &sandboxv1.UpdateSandboxRequest{SandboxID: "pod"})
	wantCode(t, "update", err, codes.Unimplemented)
	metrics, err := r.sandbox.SandboxMetrics(ctx, &sandboxv1.SandboxMetricsRequest{SandboxID: "pod"})
	if err != nil || metrics.Metrics.ID != "pod" {
		t.Errorf("metrics %v, %v", metrics, err)
	}
	_, err = r.sandbox.ShutdownSandbox(ctx, &sandboxv1.ShutdownSandboxRequest{SandboxID: "pod"})
	wantCode(t, "shutdown", err, codes.OK)
	<-r.shutdown
}

// TestStartBelongsToTheSandbox: a caller's deadline does not cancel the start, and the next caller joins it.
func TestStartBelongsToTheSandbox(t *testing.T) {
	r := start(t)
	r.fake.started = make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := r.sandbox.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxID: "pod"})
	if !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("first call: %v", err)
	}
	second := make(chan error, 1)
	go func() {
		_, err := r.sandbox.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxID: "pod"})
		second <- err
	}()
	select {
	case err := <-second:
		t.Fatalf("second call returned %v before the start did", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(r.fake.started)
	if err := <-second; err != nil {
		t.Error(err)
	}
	if got := r.fake.noted(); !slices.Equal(got, []string{"start"}) {
		t.Errorf("calls %q", got)
	}
}

func TestTask(t *testing.T) {
	r, ctx := start(t), t.Context()
	_, err := r.task.State(ctx, &taskv3.StateRequest{ID: "c"})
	wantCode(t, "state of none", err, codes.NotFound)
	r.create(t, "c")
	st, err := r.task.State(ctx, &taskv3.StateRequest{ID: "c"})
	if err != nil || st.Status != tasktypes.Status_CREATED || st.Bundle != r.dir || st.Stdout != "stream:" {
		t.Errorf("state %v, %v", st, err)
	}
	if c := r.fake.procs[sandbox.Process{Container: "c"}].config; c.Root != (containerv1.Image{ID: "image"}) ||
		c.Stdio != (containerv1.Stream{Stdin: containerv1.OpenStdin}) || c.RootFile == nil {
		t.Errorf("made of %+v", c)
	}
	res, err := r.task.Start(ctx, &taskv3.StartRequest{ID: "c"})
	if err != nil || res.Pid != 33 {
		t.Errorf("start %v, %v", res, err)
	}
	_, err = r.task.Start(ctx, &taskv3.StartRequest{ID: "c"})
	wantCode(t, "start again", err, codes.FailedPrecondition)
	_, err = r.task.Checkpoint(ctx, &taskv3.CheckpointTaskRequest{ID: "c"})
	wantCode(t, "checkpoint", err, codes.Unimplemented)
	_, err = r.task.Kill(ctx, &taskv3.KillRequest{ID: "c", Signal: 99})
	wantCode(t, "signal 99", err, codes.InvalidArgument)
	waited := make(chan *taskv3.WaitResponse, 1)
	go func() {
		res, _ := r.task.Wait(ctx, &taskv3.WaitRequest{ID: "c"})
		waited <- res
	}()
	_, err = r.task.Kill(ctx, &taskv3.KillRequest{ID: "c", Signal: 9})
	wantCode(t, "kill", err, codes.OK)
	if res := <-waited; res.GetExitStatus() != 137 {
		t.Errorf("waited: %v", res)
	}
	gone, err := r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c"})
	if err != nil || gone.ExitStatus != 137 || gone.Pid != 33 {
		t.Errorf("delete %v, %v", gone, err)
	}
	_, err = r.task.Delete(ctx, &taskv3.DeleteRequest{ID: "c"})
	wantCode(t, "delete again", err, codes.NotFound)
}

func TestCreateRefuses(t *testing.T) {
	r := start(t)
	r.create(t, "there")
	r.file(t, "disk")
	root := []*types.Mount{{Type: "bulkhead-disk", Source: "image", Options: []string{"file=disk"}}}
	tests := map[string]struct {
		request *taskv3.CreateTaskRequest
		want    codes.Code
	}{
		"taken id":   {&taskv3.CreateTaskRequest{ID: "there", Bundle: r.dir, Rootfs: root}, codes.AlreadyExists},
		"path as id": {&taskv3.CreateTaskRequest{ID: "../x", Bundle: r.dir, Rootfs: root}, codes.InvalidArgument},
		"no root":    {&taskv3.CreateTaskRequest{ID: "c", Bundle: r.dir}, codes.InvalidArgument},
		"other root": {&taskv3.CreateTaskRequest{ID: "c", Bundle: r.dir, Rootfs: []*types.Mount{{Type: "bind"}}}, codes.InvalidArgument},
		"file not sent": {
			&taskv3.CreateTaskRequest{
				ID:     "c",
				Bundle: r.dir,
				Rootfs: []*types.Mount{{Type: "bulkhead-disk", Source: "i", Options: []string{"file=no"}}},
			},
			codes.NotFound,
		},
		"log not sent": {&taskv3.CreateTaskRequest{ID: "c", Bundle: r.dir, Rootfs: root, Stdout: "log:no"}, codes.NotFound},
		"share of nothing as root": {
			&taskv3.CreateTaskRequest{ID: "c", Bundle: r.dir, Rootfs: []*types.Mount{{Type: "bulkhead-share"}}},
			codes.InvalidArgument,
		},
		"bare block as root": {
			&taskv3.CreateTaskRequest{ID: "c", Bundle: r.dir, Rootfs: []*types.Mount{{Type: "bulkhead-block", Source: "b"}}},
			codes.InvalidArgument,
		},
		"share beside": {
			&taskv3.CreateTaskRequest{ID: "c", Bundle: r.dir, Rootfs: append(root[:1:1], &types.Mount{Type: "bulkhead-share"})},
			codes.InvalidArgument,
		},
		"no bundle":  {&taskv3.CreateTaskRequest{ID: "c", Bundle: r.dir + "/no", Rootfs: root}, codes.InvalidArgument},
		"fifo":       {&taskv3.CreateTaskRequest{ID: "c", Bundle: r.dir, Rootfs: root, Stdout: "/run/fifo"}, codes.Unimplemented},
		"checkpoint": {&taskv3.CreateTaskRequest{ID: "c", Bundle: r.dir, Rootfs: root, Checkpoint: "x"}, codes.Unimplemented},
	}
	for name, test := range tests {
		_, err := r.task.Create(t.Context(), test.request)
		wantCode(t, name, err, test.want)
	}
}

func TestAttach(t *testing.T) {
	r := start(t)
	r.create(t, "c")
	conn := r.open(t, &shimv1.OpenRequest{ContainerId: "c", Stdin: true, Stdout: true})
	sizes := make(chan stream.Size, 1)
	sizes <- stream.Size{Width: 132, Height: 43}
	stdin, feed := io.Pipe()
	go func() {
		for !slices.Contains(r.fake.noted(), "resize 132x43") {
			time.Sleep(time.Millisecond)
		}
		io.WriteString(feed, strings.Repeat("x", 1<<20))
		feed.Close()
	}()
	var out bytes.Buffer
	code, err := stream.Stdio{Stdin: stdin, Stdout: &out, Resize: sizes}.Run(t.Context(), conn)
	if err != nil || code != 3 || out.Len() != 1<<20 {
		t.Errorf("code %d, %d bytes, %v", code, out.Len(), err)
	}
	_, err = r.extension.Open(t.Context(), &shimv1.OpenRequest{ContainerId: "none"})
	wantCode(t, "attach to none", err, codes.NotFound)
}

// TestLostClientLeavesStdinOpen: the end of a connection does not end stdin.
func TestLostClientLeavesStdinOpen(t *testing.T) {
	r := start(t)
	r.create(t, "c")
	conn := r.open(t, &shimv1.OpenRequest{ContainerId: "c", Stdin: true, Stdout: true})
	conn.Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if slices.Contains(r.fake.noted(), "stdin: "+stream.ErrDetached.Error()) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the process was not notified: %q", r.fake.noted())
		}
	}
}

func TestEvents(t *testing.T) {
	r := start(t)
	in, err := r.extension.Events(t.Context(), &shimv1.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := in.Recv(); err != nil || e.Topic != events.TopicReady {
		t.Fatalf("first event %v, %v", e, err)
	}
	service.OnEvent("pod", r.hub, slog.New(slog.DiscardHandler))(sandbox.Event{
		Kind: sandbox.OOM, Time: time.Now(), Process: sandbox.Process{Container: "c"},
	})
	if e, err := in.Recv(); err != nil || e.Topic != events.TopicOOM {
		t.Errorf("event %v, %v", e, err)
	}
	r.hub.Close()
	_, err = in.Recv()
	wantCode(t, "after the end", err, codes.Unavailable)
}

func TestPublishAndForward(t *testing.T) {
	r := start(t)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(conn)
			conn.Write(bytes.ToUpper(b))
			conn.Close()
		}
	}()
	r.fake.echo = echo.Addr().String()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	f, err := port.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.files.Add("port", f); err != nil {
		t.Fatal(err)
	}
	if _, err := r.extension.Publish(t.Context(), &shimv1.PublishRequest{File: "port", PodPort: 80}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", port.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ask(t, conn, conn.(*net.TCPConn).CloseWrite)

	forward := r.open(t, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_PORT_FORWARD, Port: 80})
	ask(t, forward, forward.(*net.UnixConn).CloseWrite)

	r.file(t, "no socket")
	_, err = r.extension.Publish(t.Context(), &shimv1.PublishRequest{File: "no socket", PodPort: 80})
	wantCode(t, "publish a file", err, codes.InvalidArgument)
	_, err = r.extension.Publish(t.Context(), &shimv1.PublishRequest{File: "x", PodPort: 70000})
	wantCode(t, "publish port 70000", err, codes.InvalidArgument)
}

func ask(t *testing.T, conn net.Conn, closeWrite func() error) {
	t.Helper()
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Error(err)
	}
	if err := closeWrite(); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(conn); err != nil || string(b) != "HELLO" {
		t.Errorf("answer %q, %v", b, err)
	}
}

// TestConsole follows a log, also after it is truncated.
func TestConsole(t *testing.T) {
	r := start(t)
	log, err := os.OpenFile(filepath.Join(r.dir, "console"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	log.WriteString("booting\n")
	conn := r.open(t, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_CONSOLE})
	defer conn.Close()
	expect := func(want string) {
		t.Helper()
		buf := make([]byte, len(want))
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != want {
			t.Fatalf("read %q, %v", buf, err)
		}
	}
	expect("booting\n")
	log.WriteString("panic\n")
	expect("panic\n")
	log.Truncate(0)
	log.WriteAt([]byte("x\n"), 0)
	expect("x\n")
}

func TestStatus(t *testing.T) {
	r := start(t)
	r.create(t, "c")
	st, err := r.extension.Status(t.Context(), &shimv1.StatusRequest{})
	if err != nil || len(st.Containers) != 1 || st.Containers[0].State != "ready" || st.Phases[0].Name != "machine" {
		t.Errorf("status %v, %v", st, err)
	}
	if _, err := r.task.Start(t.Context(), &taskv3.StartRequest{ID: "c"}); err != nil {
		t.Fatal(err)
	}
	stats, err := r.extension.Stats(t.Context(), &shimv1.StatsRequest{})
	if err != nil || !strings.Contains(string(stats.GetStats()), `"memory":{"total":100`) {
		t.Errorf("stats %v, %v", stats, err)
	}
}
