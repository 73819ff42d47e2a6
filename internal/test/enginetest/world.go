// Package enginetest opens engines for tests, either over a World in memory or over real shims and VMs. Tests can
// make any call of a World fail or wait.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/vms"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/timeline"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// ErrInjected is an error for calls that must fail.
var ErrInjected = errors.New("injected")

// World is an in-memory fake of an engine's environment. Tests can make any call fail or wait.
type World struct {
	mu       sync.Mutex
	shims    map[string]*Shim // by state directory
	attached map[string]bool
	starts   int
	fail     map[string]error
	once     map[string]error // fails the next call only
	block    map[string]chan struct{}
	calls    []string
	// Streams answers a shim's Open.
	Streams func(*shimv1.OpenRequest) (token string, err error)
	// Exec, if set, receives each request for an exec process.
	Exec func(*taskv3.ExecProcessRequest)
}

// New returns a World without failures.
func New() *World {
	return &World{
		shims:    map[string]*Shim{},
		attached: map[string]bool{},
		fail:     map[string]error{},
		once:     map[string]error{},
		block:    map[string]chan struct{}{},
	}
}

// call is called first by every fake.
func (w *World) call(ctx context.Context, name string) error {
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

// Shim is a fake shim with its VM.
type Shim struct {
	w          *World
	dir        string
	mu         sync.Mutex
	state      string
	reason     string
	containers map[string]*shimv1.ContainerStatus
	changed    chan struct{} // closed and replaced at each change
	done       chan struct{}
	files      map[string]bool
	config     []byte // of the pod, in JSON
}

// The three services of a fake shim. Other methods panic.
type (
	podService struct {
		*Shim
		noPod
	}
	taskService struct {
		*Shim
		noTask
	}
	extService struct {
		*Shim
		noExt
	}
	noPod  struct{ sandboxv1.TTRPCSandboxService }
	noTask struct{ taskv3.TTRPCTaskService }
	noExt  struct{ shimv1.ExtensionClient }
)

// Start implements link.Shims.
func (w *World) Start(ctx context.Context, o shim.Options) (*link.Conn, error) {
	if err := w.call(ctx, "Start"); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Mkdir(o.StateDir, 0o700), os.Mkdir(o.DataDir, 0o700),
		os.WriteFile(filepath.Join(o.StateDir, layout.VMConfig), nil, 0o600),
		os.WriteFile(filepath.Join(o.StateDir, layout.Sandbox), nil, 0o600)); err != nil {
		return nil, err
	}
	if o.Copy != nil {
		_, _ = o.Copy(ctx, filepath.Join(o.StateDir, layout.VM)) // if it fails, the shim clones
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts++
	f := &Shim{
		w: w, dir: o.StateDir, state: "ready", containers: map[string]*shimv1.ContainerStatus{},
		changed: make(chan struct{}), done: make(chan struct{}), files: map[string]bool{},
	}
	w.shims[o.StateDir] = f
	return f.conn(), nil
}

// Connect implements link.Shims.
func (w *World) Connect(_ context.Context, dir string) (*link.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.shims[dir]
	if f == nil || f.dead() {
		return nil, shim.ErrNotRunning
	}
	return f.conn(), nil
}

// Adopt implements link.Shims. It takes over the VM of a killed shim.
func (w *World) Adopt(ctx context.Context, o shim.Options) (*link.Conn, error) {
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

func (f *Shim) dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

func (f *Shim) conn() *link.Conn {
	return &link.Conn{
		TTRPCSandboxService: podService{Shim: f}, Task: taskService{Shim: f}, Ext: extService{Shim: f},
		Done: f.done, Close: func() error { return nil }, PID: 1,
		Streams: shim.StreamAddress(f.dir),
		Ended: func(ctx context.Context) error {
			select {
			case <-f.done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		SendFile: func(ctx context.Context, name string, _ *os.File) error {
			f.mu.Lock()
			f.files[name] = true
			f.mu.Unlock()
			return f.w.call(ctx, "SendFile")
		},
	}
}

// change changes the state and notifies readers of events.
func (f *Shim) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

// Die ends the shim but not its VM.
func (f *Shim) Die() { f.change(func() { close(f.done) }) }

// Config returns the pod's configuration in JSON.
func (f *Shim) Config() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config
}

func (f podService) CreateSandbox(ctx context.Context, r *sandboxv1.CreateSandboxRequest) (*sandboxv1.CreateSandboxResponse, error) {
	f.mu.Lock()
	f.config = r.GetOptions().GetValue()
	f.mu.Unlock()
	return &sandboxv1.CreateSandboxResponse{}, f.w.call(ctx, "CreateSandbox")
}

func (f podService) StartSandbox(ctx context.Context, _ *sandboxv1.StartSandboxRequest) (*sandboxv1.StartSandboxResponse, error) {
	err := f.w.call(ctx, "StartSandbox")
	if err == nil {
		f.change(func() { f.state = "running" })
	}
	return &sandboxv1.StartSandboxResponse{}, err
}

func (f podService) StopSandbox(ctx context.Context, _ *sandboxv1.StopSandboxRequest) (*sandboxv1.StopSandboxResponse, error) {
	return &sandboxv1.StopSandboxResponse{}, f.w.call(ctx, "StopSandbox")
}

func (f podService) ShutdownSandbox(ctx context.Context, _ *sandboxv1.ShutdownSandboxRequest) (*sandboxv1.ShutdownSandboxResponse, error) {
	if err := f.w.call(ctx, "ShutdownSandbox"); err != nil {
		return nil, err
	}
	f.w.mu.Lock()
	delete(f.w.shims, f.dir)
	f.w.mu.Unlock()
	f.Die()
	return &sandboxv1.ShutdownSandboxResponse{}, nil
}

func (f taskService) Create(ctx context.Context, r *taskv3.CreateTaskRequest) (*taskv3.CreateTaskResponse, error) {
	if err := f.w.call(ctx, "Create"); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(r.Bundle, "config.json")); err != nil {
		return nil, err
	}
	f.change(func() { f.containers[r.ID] = &shimv1.ContainerStatus{Id: r.ID, State: "ready"} })
	timeline.From(ctx).Add(timeline.Step{Name: "agent create", Begin: time.Now(), Parts: []timeline.Part{{Name: agentv1.PartCrun}}})
	return &taskv3.CreateTaskResponse{}, nil
}

func (f taskService) Exec(ctx context.Context, r *taskv3.ExecProcessRequest) (*emptypb.Empty, error) {
	if f.w.Exec != nil {
		f.w.Exec(r)
	}
	return &emptypb.Empty{}, f.w.call(ctx, "Exec")
}

func (f taskService) Start(ctx context.Context, r *taskv3.StartRequest) (*taskv3.StartResponse, error) {
	if r.ExecID != "" {
		return &taskv3.StartResponse{}, f.w.call(ctx, "StartExec")
	}
	if err := f.w.call(ctx, "StartTask"); err != nil {
		f.Exit(r.ID, 127, "ContainerCannotRun")
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	f.change(func() { c := f.containers[r.ID]; c.State, c.StartedAt = "running", timestamppb.Now() })
	return &taskv3.StartResponse{}, nil
}

// EndVM ends the VM as if by itself.
func (f *Shim) EndVM(reason string) { f.change(func() { f.state, f.reason = "stopped", reason }) }

// Done returns a channel that is closed when the shim has died.
func (f *Shim) Done() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// Exit ends a container.
func (f *Shim) Exit(id string, exitCode uint32, reason string) {
	f.change(func() {
		c := f.containers[id]
		c.State, c.ExitCode, c.Reason, c.ExitedAt = "stopped", exitCode, reason, timestamppb.Now()
	})
}

// Kill ends a container with exit code 128+n, unless its call fails and the signal is not SIGKILL.
func (f taskService) Kill(ctx context.Context, r *taskv3.KillRequest) (*emptypb.Empty, error) {
	if err := f.w.call(ctx, "Kill"); err != nil && r.Signal != uint32(unix.SIGKILL) {
		return &emptypb.Empty{}, nil
	}
	f.Exit(r.ID, 128+r.Signal, "Error")
	return &emptypb.Empty{}, nil
}

func (f taskService) Wait(ctx context.Context, r *taskv3.WaitRequest) (*taskv3.WaitResponse, error) {
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

func (f taskService) Delete(ctx context.Context, r *taskv3.DeleteRequest) (*taskv3.DeleteResponse, error) {
	if r.ExecID != "" {
		return &taskv3.DeleteResponse{}, f.w.call(ctx, "DeleteExec")
	}
	if err := f.w.call(ctx, "Delete"); err != nil {
		return nil, err
	}
	f.change(func() { delete(f.containers, r.ID) })
	return &taskv3.DeleteResponse{}, nil
}

func (f extService) Status(_ context.Context, _ *shimv1.StatusRequest) (*shimv1.StatusResponse, error) {
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

func (f extService) ReadFile(_ context.Context, r *shimv1.ReadFileRequest) (*shimv1.ReadFileResponse, error) {
	return &shimv1.ReadFileResponse{Data: []byte("last words of " + r.Path)}, nil
}

func (f extService) Publish(ctx context.Context, _ *shimv1.PublishRequest) (*shimv1.PublishResponse, error) {
	return &shimv1.PublishResponse{}, f.w.call(ctx, "Publish")
}

func (f extService) Open(ctx context.Context, r *shimv1.OpenRequest) (*shimv1.OpenResponse, error) {
	if err := f.w.call(ctx, "Open"); err != nil {
		return nil, err
	}
	token, err := f.w.Streams(r)
	return &shimv1.OpenResponse{Address: "not to be believed", Token: token}, err
}

func (f extService) Pause(_ context.Context, _ *shimv1.PauseRequest) (*shimv1.PauseResponse, error) {
	f.change(func() { f.state = "paused" })
	return &shimv1.PauseResponse{}, nil
}

func (f extService) Resume(_ context.Context, _ *shimv1.ResumeRequest) (*shimv1.ResumeResponse, error) {
	f.change(func() { f.state = "running" })
	return &shimv1.ResumeResponse{}, nil
}

func (f extService) Events(ctx context.Context, _ *shimv1.EventsRequest) (shimv1.Extension_EventsClient, error) {
	return &events{ctx: ctx, f: f.Shim}, nil
}

// events sends an event for every change.
type events struct {
	ttrpc.ClientStream
	ctx  context.Context
	f    *Shim
	last chan struct{}
}

func (e *events) Recv() (*shimv1.Event, error) {
	if e.last == nil {
		e.f.mu.Lock()
		e.last = e.f.changed
		e.f.mu.Unlock()
		if e.f.dead() {
			return nil, ttrpc.ErrClosed
		}
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

// fakeNet is the World's network.
type fakeNet struct {
	network.None
	w *World
}

func (n fakeNet) Kind() (network.Kind, string) { return network.KindUser, "" }

func (n fakeNet) Attach(ctx context.Context, r network.Request) (network.Attachment, error) {
	if err := n.w.call(ctx, "Attach"); err != nil {
		return network.Attachment{}, err
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.attached[r.ID] = true
	listeners, err := network.Listen(r.Ports)
	return network.Attachment{
		IPs: []string{"10.0.2.15"}, DNS: network.DNS{Servers: []string{"10.0.2.3"}}, Listeners: listeners,
		Place: func() (network.Place, error) { return network.Place{}, n.w.call(ctx, "Place") },
	}, err
}

func (n fakeNet) Detach(ctx context.Context, id string) error {
	if err := n.w.call(ctx, "Detach"); err != nil {
		return err
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	delete(n.w.attached, id)
	return nil
}

// source is the World's vms.Source.
type source struct{ w *World }

func (m source) Accel(ctx context.Context, _ hypervisor.Accel) (hypervisor.Accel, string, error) {
	return hypervisor.TCG, "", m.w.call(ctx, "Accel")
}

func (m source) Template(ctx context.Context, _ hypervisor.VMConfig, _ func()) (*vms.Template, error) {
	return &vms.Template{Key: "key", Release: func() {}}, m.w.call(ctx, "Template")
}

func (m source) Answered(hypervisor.VMConfig, time.Duration) {}

func (m source) Failed(ctx context.Context, _ hypervisor.VMConfig, _ string, _ error) {
	_ = m.w.call(ctx, "Failed")
}

func (m source) End(_ context.Context, dir string) error {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	delete(m.w.shims, filepath.Dir(dir))
	return nil
}

func (m source) Reap(context.Context) error { return nil }
func (m source) Close() error               { return nil }

// Clean fails the test if shims or networks are left.
func (w *World) Clean(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.shims) > 0 || len(w.attached) > 0 {
		t.Errorf("left behind: %d shims, networks of %v", len(w.shims), w.attached)
	}
}

// Networks returns the number of attached networks.
func (w *World) Networks() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.attached)
}

// Fail makes calls by name fail with err, or succeed if err is nil.
func (w *World) Fail(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail[name] = err
}

func (n fakeNet) Release(ctx context.Context) error { return n.w.call(ctx, "Release") }

func (n fakeNet) Close() {}

// Once makes the next call by name fail.
func (w *World) Once(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.once[name] = err
}

// Block makes calls by name wait until the caller calls release, once.
func (w *World) Block(name string) (release func()) {
	gate := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.block[name] = gate
	return func() { close(gate) }
}

// Calls returns the names of all calls so far.
func (w *World) Calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// Forget clears the list of calls.
func (w *World) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = nil
}

// Starts returns the number of started shims.
func (w *World) Starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts
}

// Shim returns the shim of a pod's state directory.
func (w *World) Shim(dir string) *Shim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shims[dir]
}

// Reboot removes all shims and VMs.
func (w *World) Reboot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.shims)
}

// There are no templates on disk.
func (m source) List(context.Context) ([]vms.Saved, error) { return nil, nil }
func (m source) Remove(context.Context, string) error      { return nil }

// VMs returns the World's fake VMs.
func (w *World) VMs() vms.Source { return source{w} }

// Network returns the World's network for any kind.
func (w *World) Network(network.Kind) (network.Provider, error) { return fakeNet{w: w}, nil }

// Update records the request as a call.
func (f taskService) Update(ctx context.Context, r *taskv3.UpdateTaskRequest) (*emptypb.Empty, error) {
	if err := f.w.call(ctx, fmt.Sprintf("Update %s %s", r.ID, r.Resources.GetValue())); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// Resize records the request as a call.
func (f extService) Resize(ctx context.Context, r *shimv1.ResizeRequest) (*shimv1.ResizeResponse, error) {
	return &shimv1.ResizeResponse{}, f.w.call(ctx, fmt.Sprintf("Resize %d %s", r.MemoryMib, r.Limits))
}
