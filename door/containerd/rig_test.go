package containerd

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
)

// The tests mount in a mount namespace of their own.
func TestMain(m *testing.M) {
	execsGrace = 200 * time.Millisecond
	os.Exit(testnet.Alone(m))
}

// rig is a front's services with a fake Runtime, and clients.
type rig struct {
	*fake
	published
	services  *Services
	client    *ttrpc.Client
	task      taskv3.TTRPCTaskService
	sandbox   sandboxv1.TTRPCSandboxService
	shutdowns atomic.Int32
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{fake: newFake()}
	r.services = New(Options{
		Namespace: "n", Runtime: r.fake, Events: &r.published, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Shutdown: func() { r.shutdowns.Add(1) },
	})
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	r.services.Register(server)
	dir, err := os.MkdirTemp("", "front")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r.client = ttrpc.NewClient(conn)
	r.task, r.sandbox = taskv3.NewTTRPCTaskClient(r.client), sandboxv1.NewTTRPCSandboxClient(r.client)
	t.Cleanup(func() {
		r.client.Close()
		server.Close()
		<-served
		r.services.Close()
		os.RemoveAll(dir)
	})
	return r
}

// within returns a context with a deadline that a hanging test reaches.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// bundle returns a directory with a configuration.
func bundle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"ociVersion":"1.2.0"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, rootName), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run creates and starts a task, and returns its bundle.
func (r *rig) run(t *testing.T, id string) string {
	t.Helper()
	dir := bundle(t)
	if _, err := r.task.Create(within(t), &taskv3.CreateTaskRequest{ID: id, Bundle: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.task.Start(within(t), &taskv3.StartRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// exec registers and starts an exec.
func (r *rig) exec(t *testing.T, id, exec string) {
	t.Helper()
	spec := &anypb.Any{Value: []byte("{}")}
	if _, err := r.task.Exec(within(t), &taskv3.ExecProcessRequest{ID: id, ExecID: exec, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.task.Start(within(t), &taskv3.StartRequest{ID: id, ExecID: exec}); err != nil {
		t.Fatal(err)
	}
}

// await waits for the exit of a process, and returns its status.
func (r *rig) await(t *testing.T, id, exec string) uint32 {
	t.Helper()
	res, err := r.task.Wait(within(t), &taskv3.WaitRequest{ID: id, ExecID: exec})
	if err != nil {
		t.Fatal(err)
	}
	return res.ExitStatus
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
	}
}
