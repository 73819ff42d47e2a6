package cri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

var errInjected = errors.New("injected")

// world is the outside of an engine, in memory, in which any call can be made
// to fail or to wait.
type world struct {
	mu       sync.Mutex
	shims    map[string]*fakeShim // by state directory
	attached map[string]bool
	starts   int
	fail     map[string]error
	once     map[string]error // fails the next call only
	block    map[string]chan struct{}
	calls    []string
	open     func(*shimv1.OpenRequest) (token string, err error)
}

func newWorld() *world {
	return &world{shims: map[string]*fakeShim{}, attached: map[string]bool{}, fail: map[string]error{}, once: map[string]error{}, block: map[string]chan struct{}{}}
}

// call is made by every fake at its beginning.
func (w *world) call(ctx context.Context, name string) error {
	w.mu.Lock()
	w.calls = append(w.calls, name)
	block, err := w.block[name], w.fail[name]
	if first := w.once[name]; first != nil {
		err = first
		delete(w.once, name)
	}
	w.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// fakeShim is a shim and its machine.
type fakeShim struct {
	w          *world
	dir        string
	mu         sync.Mutex
	state      string
	reason     string
	containers map[string]*shimv1.ContainerStatus
	changed    chan struct{} // closed and replaced at each change
	done       chan struct{}
	files      map[string]bool
}

// The three services of a fake shim. A method that is not here panics.
type (
	fakePod struct {
		*fakeShim
		noPod
	}
	fakeTask struct {
		*fakeShim
		noTask
	}
	fakeExt struct {
		*fakeShim
		noExt
	}
	noPod  struct{ sandboxv1.TTRPCSandboxService }
	noTask struct{ taskv3.TTRPCTaskService }
	noExt  struct{ shimv1.ExtensionClient }
)

func (w *world) Start(ctx context.Context, o shim.Options) (*conn, error) {
	if err := w.call(ctx, "Start"); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Mkdir(o.StateDir, 0o700), os.Mkdir(o.DataDir, 0o700),
		os.WriteFile(filepath.Join(o.StateDir, layout.Machine), nil, 0o600),
		os.WriteFile(filepath.Join(o.StateDir, layout.Sandbox), nil, 0o600)); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts++
	f := &fakeShim{
		w: w, dir: o.StateDir, state: "ready", containers: map[string]*shimv1.ContainerStatus{},
		changed: make(chan struct{}), done: make(chan struct{}), files: map[string]bool{},
	}
	w.shims[o.StateDir] = f
	return f.conn(), nil
}

func (w *world) Connect(ctx context.Context, dir string) (*conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.shims[dir]
	if f == nil || f.dead() {
		return nil, shim.ErrNotRunning
	}
	return f.conn(), nil
}

// Adopt takes over what a killed shim left.
func (w *world) Adopt(ctx context.Context, o shim.Options) (*conn, error) {
	if err := w.call(ctx, "Adopt"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.shims[o.StateDir]
	if f == nil {
		return nil, errors.New("nothing to adopt")
	}
	f.mu.Lock()
	f.done = make(chan struct{})
	f.mu.Unlock()
	return f.conn(), nil
}

func (f *fakeShim) dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

func (f *fakeShim) conn() *conn {
	return &conn{
		TTRPCSandboxService: fakePod{fakeShim: f}, task: fakeTask{fakeShim: f}, ext: fakeExt{fakeShim: f}, done: f.done, close: func() error { return nil }, pid: 1,
		streams: shim.StreamAddress(f.dir),
		ended: func(ctx context.Context) error {
			select {
			case <-f.done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		sendFile: func(ctx context.Context, name string, file *os.File) error {
			f.mu.Lock()
			f.files[name] = true
			f.mu.Unlock()
			return f.w.call(ctx, "SendFile")
		},
	}
}

// change wakes who follows the events.
func (f *fakeShim) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeShim) die() { f.change(func() { close(f.done) }) }

func (f fakePod) CreateSandbox(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.CreateSandboxResponse, error) {
	return &sandboxv1.CreateSandboxResponse{}, f.w.call(ctx, "CreateSandbox")
}

func (f fakePod) StartSandbox(ctx context.Context, r *sandboxv1.StartSandboxRequest) (*sandboxv1.StartSandboxResponse, error) {
	err := f.w.call(ctx, "StartSandbox")
	if err == nil {
		f.change(func() { f.state = "running" })
	}
	return &sandboxv1.StartSandboxResponse{}, err
}

func (f fakePod) ShutdownSandbox(ctx context.Context, r *sandboxv1.ShutdownSandboxRequest) (*sandboxv1.ShutdownSandboxResponse, error) {
	if err := f.w.call(ctx, "ShutdownSandbox"); err != nil {
		return nil, err
	}
	f.w.mu.Lock()
	delete(f.w.shims, f.dir)
	f.w.mu.Unlock()
	f.die()
	return &sandboxv1.ShutdownSandboxResponse{}, nil
}

func (f fakeTask) Create(ctx context.Context, r *taskv3.CreateTaskRequest) (*taskv3.CreateTaskResponse, error) {
	if err := f.w.call(ctx, "Create"); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(r.Bundle, "config.json")); err != nil {
		return nil, err
	}
	f.change(func() { f.containers[r.ID] = &shimv1.ContainerStatus{Id: r.ID, State: "ready"} })
	return &taskv3.CreateTaskResponse{}, nil
}

func (f fakeTask) Start(ctx context.Context, r *taskv3.StartRequest) (*taskv3.StartResponse, error) {
	if err := f.w.call(ctx, "StartTask"); err != nil {
		f.exit(r.ID, 127, "ContainerCannotRun")
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	f.change(func() { c := f.containers[r.ID]; c.State, c.StartedAt = "running", timestamppb.Now() })
	return &taskv3.StartResponse{}, nil
}

func (f *fakeShim) exit(id string, exitCode uint32, reason string) {
	f.change(func() {
		c := f.containers[id]
		c.State, c.ExitCode, c.Reason, c.ExitedAt = "stopped", exitCode, reason, timestamppb.Now()
	})
}

// Kill ends a container with 128+n, unless it is told to ignore the signal.
func (f fakeTask) Kill(ctx context.Context, r *taskv3.KillRequest) (*emptypb.Empty, error) {
	if err := f.w.call(ctx, "Kill"); err != nil && r.Signal != sigKILL {
		return &emptypb.Empty{}, nil
	}
	f.exit(r.ID, 128+r.Signal, "Error")
	return &emptypb.Empty{}, nil
}

func (f fakeTask) Wait(ctx context.Context, r *taskv3.WaitRequest) (*taskv3.WaitResponse, error) {
	for {
		f.mu.Lock()
		c, changed := f.containers[r.ID], f.changed
		ended := c == nil || c.State == "stopped"
		f.mu.Unlock()
		if ended {
			return &taskv3.WaitResponse{}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f fakeTask) Delete(ctx context.Context, r *taskv3.DeleteRequest) (*taskv3.DeleteResponse, error) {
	if err := f.w.call(ctx, "Delete"); err != nil {
		return nil, err
	}
	f.change(func() { delete(f.containers, r.ID) })
	return &taskv3.DeleteResponse{}, nil
}

func (f fakeExt) Status(ctx context.Context, _ *shimv1.StatusRequest) (*shimv1.StatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &shimv1.StatusResponse{State: f.state, ExitReason: f.reason}
	for _, c := range f.containers {
		res.Containers = append(res.Containers, &shimv1.ContainerStatus{
			Id: c.Id, State: c.State, ExitCode: c.ExitCode, Reason: c.Reason, StartedAt: c.StartedAt, ExitedAt: c.ExitedAt,
		})
	}
	return res, nil
}

func (f fakeExt) Rehearse(ctx context.Context, _ *shimv1.RehearseRequest) (*shimv1.RehearseResponse, error) {
	return &shimv1.RehearseResponse{}, f.w.call(ctx, "Rehearse")
}

func (f fakeExt) ReadFile(ctx context.Context, r *shimv1.ReadFileRequest) (*shimv1.ReadFileResponse, error) {
	return &shimv1.ReadFileResponse{Data: []byte("last words of " + r.Path)}, nil
}

func (f fakeExt) Publish(ctx context.Context, _ *shimv1.PublishRequest) (*shimv1.PublishResponse, error) {
	return &shimv1.PublishResponse{}, f.w.call(ctx, "Publish")
}

func (f fakeExt) Open(ctx context.Context, r *shimv1.OpenRequest) (*shimv1.OpenResponse, error) {
	if err := f.w.call(ctx, "Open"); err != nil {
		return nil, err
	}
	token, err := f.w.open(r)
	return &shimv1.OpenResponse{Address: "not to be believed", Token: token}, err
}

func (f fakeExt) Pause(ctx context.Context, _ *shimv1.PauseRequest) (*shimv1.PauseResponse, error) {
	f.change(func() { f.state = "paused" })
	return &shimv1.PauseResponse{}, nil
}

func (f fakeExt) Resume(ctx context.Context, _ *shimv1.ResumeRequest) (*shimv1.ResumeResponse, error) {
	f.change(func() { f.state = "running" })
	return &shimv1.ResumeResponse{}, nil
}

func (f fakeExt) Events(ctx context.Context, _ *shimv1.EventsRequest) (shimv1.Extension_EventsClient, error) {
	return &fakeEvents{ctx: ctx, f: f.fakeShim}, nil
}

// fakeEvents has an event for every change.
type fakeEvents struct {
	ttrpc.ClientStream
	ctx  context.Context
	f    *fakeShim
	last chan struct{}
}

func (e *fakeEvents) Recv() (*shimv1.Event, error) {
	if e.last == nil {
		e.f.mu.Lock()
		e.last = e.f.changed
		e.f.mu.Unlock()
		return &shimv1.Event{Topic: "/bulkhead/ready"}, nil
	}
	select {
	case <-e.last:
	case <-e.ctx.Done():
		return nil, e.ctx.Err()
	}
	if e.f.dead() {
		return nil, ttrpc.ErrClosed
	}
	e.f.mu.Lock()
	e.last = e.f.changed
	e.f.mu.Unlock()
	return &shimv1.Event{Topic: "/tasks/any"}, nil
}

// Kind, Attach, Detach: the world is a network too.
type fakeNetwork struct{ w *world }

func (n fakeNetwork) Kind() (network.Kind, string) { return network.KindUser, "" }

func (n fakeNetwork) Attach(ctx context.Context, r network.Request) (network.Attachment, error) {
	if err := n.w.call(ctx, "Attach"); err != nil {
		return network.Attachment{}, err
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.attached[r.ID] = true
	listeners, err := network.Listen(r.Ports)
	return network.Attachment{IPs: []string{"10.0.2.15"}, DNS: network.DNS{Servers: []string{"10.0.2.3"}}, Listeners: listeners}, err
}

func (n fakeNetwork) Detach(ctx context.Context, id string) error {
	if err := n.w.call(ctx, "Detach"); err != nil {
		return err
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	delete(n.w.attached, id)
	return nil
}

// fakeMachines has any machine at once.
type fakeMachines struct{ w *world }

func (m fakeMachines) Accel(ctx context.Context, _ hypervisor.Accel) (hypervisor.Accel, string, error) {
	return hypervisor.TCG, "", m.w.call(ctx, "Accel")
}

func (m fakeMachines) Template(ctx context.Context, _ hypervisor.Machine, _ func()) (*template, error) {
	return &template{key: "key"}, m.w.call(ctx, "Template")
}

func (m fakeMachines) End(ctx context.Context, dir string) error {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	delete(m.w.shims, filepath.Dir(dir))
	return nil
}

func (m fakeMachines) Reap(context.Context) error { return nil }
func (m fakeMachines) Close() error               { return nil }

// fakeEngine starts an engine in w.
func fakeEngine(t testing.TB, w *world, o Options) *Service {
	t.Helper()
	o.Network = func(network.Kind) (network.Provider, error) { return fakeNetwork{w}, nil }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := newService(ctx, o, w, fakeMachines{w})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return s
}

// clean fails the test for anything that lives on outside the engine.
func (w *world) clean(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.shims) > 0 || len(w.attached) > 0 {
		t.Errorf("left behind: %d shims, networks of %v", len(w.shims), w.attached)
	}
}

// networks counts the networks that pods are attached to.
func (w *world) networks() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.attached)
}

func (w *world) set(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail[name] = err
}

func (n fakeNetwork) Release(context.Context) error { return nil }
