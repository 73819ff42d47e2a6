package process

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"google.golang.org/protobuf/types/known/anypb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisorfake"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/sandbox"
	client "github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/confine"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

const podID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// world is one pod: its directory, and its VM, which can outlive its shims.
type world struct {
	t      *testing.T
	ctx    context.Context
	dir    string
	config hypervisor.VMConfig
	host   host
	driver recorder

	mu       sync.Mutex
	log      bytes.Buffer
	policies []confine.Policy // of the shim, then of each VM
	sealed   []int
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, ctx: testdeadline.Context(t, 10*time.Second), dir: hypervisortest.Dir(t)}
	w.config = hypervisor.VMConfig{
		Kernel: "/vmlinux", Accel: hypervisor.TCG, VCPUs: 1, Memory: 128, MaxMem: 128,
		Slots: 4, Scratch: 1, Network: hypervisor.NetworkNone,
	}
	w.driver.Serve = func(_ *hypervisorfake.Guest, conn net.Conn) {
		channel.Serve(w.ctx, conn, channel.Hello{Version: agentv1.Version}, func(c net.Conn) { agentv1.Serve(w.ctx, c, agent()) })
	}
	w.host = host{
		driver: func() (hypervisor.Driver, []string, error) { return &w.driver, []string{"/usr/bin/vmm"}, nil },
		confine: func(p confine.Policy) (missing, err error) {
			w.note(func() { w.policies = append(w.policies, p) })
			return nil, nil
		},
		spawn: func(cmd *exec.Cmd, p confine.Policy) (missing, err error) {
			w.note(func() { w.policies = append(w.policies, p) })
			return nil, cmd.Start()
		},
		seal: func(vm int) error {
			w.note(func() { w.sealed = append(w.sealed, vm) })
			return nil
		},
	}
	t.Cleanup(func() { w.driver.End(context.Background(), filepath.Join(w.dir, layout.VM)) })
	return w
}

// agent is a guest that accepts everything that a start requests.
func agent() agentv1.Handlers {
	type none = struct{}
	return agentv1.Handlers{
		agentv1.OpPing: agentv1.Unary(func(context.Context, none) (agentv1.Pong, error) { return agentv1.Pong{Time: time.Now()}, nil }),
		agentv1.OpConfigure: agentv1.Unary(func(context.Context, agentv1.Configure) (agentv1.Configured, error) {
			return agentv1.Configured{Kernel: "6.1"}, nil
		}),
		agentv1.OpFlush:  agentv1.Unary(func(context.Context, none) (none, error) { return none{}, nil }),
		agentv1.OpList:   agentv1.Unary(func(context.Context, none) (agentv1.List, error) { return agentv1.List{}, nil }),
		agentv1.OpAdjust: agentv1.Unary(func(context.Context, agentv1.AdjustTime) (none, error) { return none{}, nil }),
	}
}

// recorder is a driver of fakes that records its calls.
type recorder struct {
	hypervisorfake.Driver

	mu     sync.Mutex
	asked  []string // "boot", "clone" and "adopt"
	booted hypervisor.VMConfig
	name   string
	vm     hypervisor.VM // the latest
}

func (r *recorder) noted(what string, m hypervisor.VMConfig, o hypervisor.Options, vm hypervisor.VM) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked, r.booted, r.name = append(r.asked, what), m, o.Name
	if vm != nil {
		r.vm = vm
	}
}

func (r *recorder) Boot(ctx context.Context, m hypervisor.VMConfig, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	vm, err := r.Driver.Boot(ctx, m, f, o)
	r.noted("boot", m, o, vm)
	return vm, err
}

// Clone boots and ignores the files.
func (r *recorder) Clone(ctx context.Context, m hypervisor.VMConfig, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	vm, err := r.Driver.Boot(ctx, m, f, o)
	r.noted("clone", m, o, vm)
	return vm, err
}

func (r *recorder) Adopt(ctx context.Context, rec hypervisor.Record, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	vm, err := r.Driver.Adopt(ctx, rec, f, o)
	r.noted("adopt", rec.VM, o, vm)
	return vm, err
}

// alive reports whether the latest VM runs.
func (r *recorder) alive() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.vm == nil {
		return false
	}
	select {
	case <-r.vm.Done():
		return false
	default:
		return true
	}
}

func (w *world) note(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// Write appends to the shims' log.
func (w *world) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// quiet fails the test if a shim has logged a warning or an error.
func (w *world) quiet() {
	w.t.Helper()
	if log := w.logged(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
		w.t.Errorf("the log is not empty:\n%s", log)
	}
}

// life is one shim that runs in the test's process.
type life struct {
	w    *world
	shim *shim
	near *net.UnixConn
	done chan error
}

// start runs a shim and sends m to it.
func (w *world) start(m bootstrap.Message, files map[string]*os.File) *life {
	w.t.Helper()
	near, far, err := bootstrap.Pair()
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := bootstrap.Conn(far)
	if err != nil {
		w.t.Fatal(err)
	}
	l := &life{
		w: w, near: near, done: make(chan error, 1),
		shim: &shim{host: w.host, log: slog.New(slog.NewTextHandler(w, nil)), ended: make(chan string, 1)},
	}
	go func() {
		err := l.shim.run(conn)
		conn.Close()
		if l.shim.lock != nil {
			l.shim.lock.Unlock() // like the process's end
		}
		l.done <- err
	}()
	m.ID, m.Instance, m.StateDir, m.VM = podID, "test", w.dir, w.config
	if err := bootstrap.Send(near, m, files); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { near.Close() })
	return l
}

// reply returns the shim's answer.
func (l *life) reply() string {
	l.w.t.Helper()
	deadline, _ := l.w.ctx.Deadline()
	l.near.SetDeadline(deadline)
	r, err := bootstrap.Await(l.near)
	if err != nil {
		l.w.t.Fatalf("no reply: %v\n%s", err, l.w.logged())
	}
	return r.Error
}

// wait waits for run's end.
func (l *life) wait() error {
	l.w.t.Helper()
	select {
	case err := <-l.done:
		return err
	case <-l.w.ctx.Done():
		l.w.t.Fatalf("the shim does not end: %v\n%s", context.Cause(l.w.ctx), l.w.logged())
		return nil
	}
}

// connect returns a client of a shim that serves.
func (l *life) connect() *client.Client {
	l.w.t.Helper()
	if reply := l.reply(); reply != "" {
		l.w.t.Fatalf("%s\n%s", reply, l.w.logged())
	}
	c, err := client.Connect(l.w.ctx, l.w.dir)
	if err != nil {
		l.w.t.Fatal(err)
	}
	l.w.t.Cleanup(func() { c.Close() })
	return c
}

// start creates the pod and starts it.
func (l *life) start(c *client.Client) error {
	l.w.t.Helper()
	config, err := json.Marshal(sandbox.Config{
		Version: sandbox.ConfigVersion, ID: podID, Instance: "test", Name: "p", Namespace: "default",
		Created: time.Now(), Hostname: "p", VM: l.w.config, MemoryMiB: l.w.config.Memory,
	})
	if err != nil {
		l.w.t.Fatal(err)
	}
	_, err = c.Sandbox.CreateSandbox(l.w.ctx, &sandboxv1.CreateSandboxRequest{
		SandboxID: podID, Options: &anypb.Any{TypeUrl: layout.ConfigType, Value: config},
	})
	if err != nil {
		l.w.t.Fatal(err)
	}
	_, err = c.Sandbox.StartSandbox(l.w.ctx, &sandboxv1.StartSandboxRequest{SandboxID: podID})
	return err
}
