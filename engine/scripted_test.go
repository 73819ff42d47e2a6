package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

// scripted is a shim with scripted answers.
type scripted struct {
	mu     sync.Mutex
	called []string
	errs   map[string][]error     // of the next calls by name
	on     map[string]func()      // run by each call of a name
	status *shimv1.StatusResponse // nil if containers are unknown
	stats  *agentv1.PodStats
	exec   *taskv3.StateResponse     // of an exec
	opened func(*shimv1.OpenRequest) // receives the requests to open streams
	token  func() (string, error)    // of opened streams; nil means "token"
	dead   bool                      // its connections are closed
}

// errSilent makes a call wait for the end of its context.
var errSilent = fmt.Errorf("silent")

// call records a call and returns its error.
func (s *scripted) call(ctx context.Context, name, detail string) error {
	s.mu.Lock()
	s.called = append(s.called, name+detail)
	var err error
	if next := s.errs[name]; len(next) > 0 {
		err, s.errs[name] = next[0], next[1:]
	}
	do := s.on[name]
	s.mu.Unlock()
	if do != nil {
		do()
	}
	if err == errSilent { //nolint:errorlint // it is not wrapped
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// calls returns the calls since its last use.
func (s *scripted) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	called := s.called
	s.called = nil
	return called
}

func (s *scripted) conn() *link.Conn {
	done := make(chan struct{})
	if s.dead {
		close(done)
	}
	return &link.Conn{
		TTRPCSandboxService: scriptedSandbox{scripted: s}, Task: scriptedTask{scripted: s}, Ext: scriptedExt{scripted: s},
		Done: done, Close: func() error { return nil },
		Ended:    func(ctx context.Context) error { return s.call(ctx, "Ended", "") },
		SendFile: func(ctx context.Context, name string, _ *os.File) error { return s.call(ctx, "SendFile", " "+name) },
	}
}

type scriptedSandbox struct {
	sandboxv1.TTRPCSandboxService
	*scripted
}

func (s scriptedSandbox) StopSandbox(ctx context.Context, _ *sandboxv1.StopSandboxRequest) (*sandboxv1.StopSandboxResponse, error) {
	return &sandboxv1.StopSandboxResponse{}, s.call(ctx, "StopSandbox", "")
}

func (s scriptedSandbox) ShutdownSandbox(
	ctx context.Context, _ *sandboxv1.ShutdownSandboxRequest,
) (*sandboxv1.ShutdownSandboxResponse, error) {
	return &sandboxv1.ShutdownSandboxResponse{}, s.call(ctx, "ShutdownSandbox", "")
}

type scriptedTask struct {
	taskv3.TTRPCTaskService
	*scripted
}

type scriptedExt struct {
	shimv1.ExtensionClient
	*scripted
}

func (s scriptedTask) Start(ctx context.Context, _ *taskv3.StartRequest) (*taskv3.StartResponse, error) {
	return &taskv3.StartResponse{}, s.call(ctx, "Start", "")
}

func (s scriptedTask) Kill(ctx context.Context, r *taskv3.KillRequest) (*emptypb.Empty, error) {
	whom := ""
	if r.All {
		whom = " all"
	}
	return &emptypb.Empty{}, s.call(ctx, "Kill", fmt.Sprintf(" %d%s", r.Signal, whom))
}

func (s scriptedTask) Wait(ctx context.Context, _ *taskv3.WaitRequest) (*taskv3.WaitResponse, error) {
	return &taskv3.WaitResponse{}, s.call(ctx, "Wait", "")
}

func (s scriptedTask) Delete(ctx context.Context, _ *taskv3.DeleteRequest) (*taskv3.DeleteResponse, error) {
	return &taskv3.DeleteResponse{}, s.call(ctx, "Delete", "")
}

func (s scriptedTask) Exec(ctx context.Context, r *taskv3.ExecProcessRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, s.call(ctx, "Exec", "")
}

func (s scriptedTask) State(ctx context.Context, _ *taskv3.StateRequest) (*taskv3.StateResponse, error) {
	return s.exec, s.call(ctx, "State", "")
}

func (s scriptedTask) Update(ctx context.Context, r *taskv3.UpdateTaskRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, s.call(ctx, "Update", fmt.Sprintf(" %s %s", r.ID, r.Resources.GetValue()))
}

func (s scriptedExt) Status(ctx context.Context, _ *shimv1.StatusRequest) (*shimv1.StatusResponse, error) {
	if err := s.call(ctx, "Status", ""); err != nil {
		return nil, err
	}
	return s.status, nil
}

func (s scriptedExt) Pause(ctx context.Context, _ *shimv1.PauseRequest) (*shimv1.PauseResponse, error) {
	return &shimv1.PauseResponse{}, s.call(ctx, "Pause", "")
}

func (s scriptedExt) Resume(ctx context.Context, _ *shimv1.ResumeRequest) (*shimv1.ResumeResponse, error) {
	return &shimv1.ResumeResponse{}, s.call(ctx, "Resume", "")
}

func (s scriptedExt) ReopenLog(ctx context.Context, r *shimv1.ReopenLogRequest) (*shimv1.ReopenLogResponse, error) {
	return &shimv1.ReopenLogResponse{}, s.call(ctx, "ReopenLog", " "+r.GetFile())
}

func (s scriptedExt) Open(ctx context.Context, r *shimv1.OpenRequest) (*shimv1.OpenResponse, error) {
	if s.opened != nil {
		s.opened(r)
	}
	if err := s.call(ctx, "Open", ""); err != nil {
		return nil, err
	}
	if s.token == nil {
		return &shimv1.OpenResponse{Token: "token"}, nil
	}
	token, err := s.token()
	return &shimv1.OpenResponse{Token: token}, err
}

func (s scriptedExt) Publish(ctx context.Context, _ *shimv1.PublishRequest) (*shimv1.PublishResponse, error) {
	return &shimv1.PublishResponse{}, s.call(ctx, "Publish", "")
}

func (s scriptedExt) Resize(ctx context.Context, r *shimv1.ResizeRequest) (*shimv1.ResizeResponse, error) {
	return &shimv1.ResizeResponse{}, s.call(ctx, "Update", fmt.Sprintf("  %s", r.GetLimits()))
}

func (s scriptedExt) Stats(ctx context.Context, _ *shimv1.StatsRequest) (*shimv1.StatsResponse, error) {
	raw, err := json.Marshal(s.stats)
	return &shimv1.StatsResponse{Stats: raw}, errors.Join(err, s.call(ctx, "Stats", ""))
}

func (s scriptedExt) ReadFile(ctx context.Context, _ *shimv1.ReadFileRequest) (*shimv1.ReadFileResponse, error) {
	if err := s.call(ctx, "ReadFile", ""); err != nil {
		return nil, err
	}
	return &shimv1.ReadFileResponse{Data: []byte("words")}, nil
}

// Events reports no events.
func (s scriptedExt) Events(ctx context.Context, _ *shimv1.EventsRequest) (shimv1.Extension_EventsClient, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// scriptedPod returns a ready pod of an engine, with a container "c" in a state.
func scriptedPod(t *testing.T, s *scripted, state State) *container {
	t.Helper()
	p := barePod(bareEngine(t), nil)
	p.conn = s.conn()
	if err := p.e.store.MakePod(p.id); err != nil {
		t.Fatal(err)
	}
	c := &container{pod: p, Stored: store.Stored{Container: store.Container{ID: store.NewID(), Key: "c/0", Name: "c", StopSignal: 15}}}
	if state != ContainerCreated {
		c.Started = time.Now()
	}
	if state == ContainerExited {
		c.Exit = &store.Exit{}
	}
	if err := p.e.store.PutContainer(p.id, &c.Container); err != nil {
		t.Fatal(err)
	}
	p.containers[c.ID] = c
	p.e.hold(p)
	return c
}

// now returns the container's state.
func (c *container) now() State {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.state()
}

// statusOf returns a shim's status of the container.
func statusOf(c *container, state State) *shimv1.ContainerStatus {
	w := &shimv1.ContainerStatus{Id: c.ID, State: "ready"}
	switch state {
	case ContainerRunning:
		w.State, w.StartedAt = "running", timestamppb.Now()
	case ContainerExited:
		w.State, w.ExitCode, w.ExitedAt = "stopped", 127, timestamppb.Now()
	case ContainerCreated:
	}
	return w
}

// says sets the shim's status of the container.
func (s *scripted) says(c *container, state State) {
	s.status = &shimv1.StatusResponse{State: "running", Containers: []*shimv1.ContainerStatus{statusOf(c, state)}}
}

// same fails the test if the calls differ.
func (s *scripted) same(t *testing.T, want ...string) {
	t.Helper()
	if got := s.calls(); !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

// codeOf returns an error's code, OK for nil.
func codeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	return grpccode.Of(err)
}
