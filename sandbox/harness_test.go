package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

const podID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// harness is a sandbox over fakes.
type harness struct {
	t     *testing.T
	ctx   context.Context
	dir   string
	agent *fakeAgent
	box   *Sandbox
	log   *buffer // the sandbox's log

	mu     sync.Mutex
	vms    []*fakeVM
	start  func() error // makes a start fail
	events []Event
	seen   chan struct{} // closed and replaced at every event
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := prepare(t)
	box, err := New(h.options())
	if err != nil {
		t.Fatal(err)
	}
	h.use(box)
	return h
}

func prepare(t *testing.T) *harness {
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(30*time.Second))
	t.Cleanup(cancel)
	return &harness{t: t, ctx: ctx, dir: t.TempDir(), agent: newFakeAgent(), log: newBuffer(), seen: make(chan struct{})}
}

func (h *harness) use(box *Sandbox) {
	h.box = box
	h.t.Cleanup(func() { box.Close() })
}

func (h *harness) options() Options {
	return Options{
		ID: podID, StateDir: h.dir, Events: h.onEvent, Logger: slog.New(slog.NewTextHandler(h.log, nil)),
		BootTimeout: testdeadline.For(10 * time.Second), CallTimeout: testdeadline.For(5 * time.Second),
		StartVM: func(context.Context) (hypervisor.VM, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.start != nil {
				if err := h.start(); err != nil {
					return nil, err
				}
			}
			vm := newFakeVM(h.t, h.agent)
			h.vms = append(h.vms, vm)
			return vm, nil
		},
		Adopt: func(_ context.Context, r hypervisor.Record) (hypervisor.VM, error) {
			vm := h.vm()
			if r.Dir != vm.dir {
				return nil, errors.New("record of another VM")
			}
			if err := vm.failing("Adopt"); err != nil {
				return nil, err
			}
			return vm, nil
		},
	}
}

func (h *harness) onEvent(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	close(h.seen)
	h.seen = make(chan struct{})
}

// event waits for the first event of a kind.
func (h *harness) event(kind EventKind) Event {
	h.t.Helper()
	for {
		h.mu.Lock()
		seen := h.seen
		for _, e := range h.events {
			if e.Kind == kind {
				h.mu.Unlock()
				return e
			}
		}
		h.mu.Unlock()
		select {
		case <-seen:
		case <-h.ctx.Done():
			h.t.Fatalf("no event %s", kind)
		}
	}
}

func (h *harness) vm() *fakeVM {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.vms[len(h.vms)-1]
}

func (h *harness) config() Config {
	return Config{
		Version: ConfigVersion, ID: podID, Instance: "run", Name: "p", Namespace: "default",
		Created: time.Now().UTC(), Hostname: "p", VM: testVMConfig(), MemoryMiB: 512,
	}
}

func (h *harness) scratch() *os.File {
	h.t.Helper()
	f, err := os.Create(filepath.Join(h.t.TempDir(), "scratch.img"))
	if err != nil {
		h.t.Fatal(err)
	}
	return f
}

// must fails the test on an error.
func (h *harness) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// running creates and starts the sandbox.
func running(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t)
	h.must(h.box.Create(h.ctx, h.config(), Files{Scratch: h.scratch()}))
	h.must(h.box.Start(h.ctx))
	return h
}

func (h *harness) disk(name string) *os.File {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), name)
	h.must(os.WriteFile(path, nil, 0o600))
	f, err := os.Open(path)
	h.must(err)
	return f
}

func (h *harness) logPath(id string) string { return filepath.Join(h.dir, id+".log") }

func (h *harness) openLog(id string) *os.File {
	h.t.Helper()
	f, err := os.OpenFile(h.logPath(id), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	h.must(err)
	return f
}

func (h *harness) container(id string) ContainerConfig {
	return ContainerConfig{
		ID: id, Root: containerv1.Image{ID: "image-" + id}, RootFile: h.disk("disk"), Spec: []byte(`{}`),
		Stdio: containerv1.Log{File: "log", Stdin: containerv1.OpenStdin}, Log: h.openLog(id),
	}
}

// started creates a container and starts it.
func (h *harness) started(id string) *fakeProc {
	h.t.Helper()
	h.must(h.box.CreateContainer(h.ctx, h.container(id)))
	_, err := h.box.StartProcess(h.ctx, Process{Container: id})
	h.must(err)
	return h.fake(Process{Container: id})
}

func (h *harness) fake(id Process) *fakeProc {
	h.t.Helper()
	p, err := h.agent.proc(id)
	h.must(err)
	return p
}

func (h *harness) write(p *fakeProc, stream, text string) {
	h.t.Helper()
	h.must(p.write(h.ctx, stream, []byte(text)))
}

func (h *harness) wait(id Process) Exit {
	h.t.Helper()
	exit, err := h.box.WaitProcess(h.ctx, id)
	h.must(err)
	return exit
}

// logged returns the texts of a log's lines, with their stream and tag.
func (h *harness) logged(id string) []string {
	h.t.Helper()
	data, err := os.ReadFile(h.logPath(id))
	h.must(err)
	var lines []string
	for line := range strings.Lines(string(data)) {
		_, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			h.t.Fatalf("bad line %q", line)
		}
		lines = append(lines, rest)
	}
	return lines
}

// buffer is a client's end of an output.
type buffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

func newBuffer() *buffer { return &buffer{changed: make(chan struct{})} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { close(b.changed); b.changed = make(chan struct{}) }()
	return b.b.Write(p)
}

// until waits for the content to have a suffix.
func (b *buffer) until(h *harness, suffix string) {
	h.t.Helper()
	for {
		b.mu.Lock()
		text, changed := b.b.String(), b.changed
		b.mu.Unlock()
		if strings.HasSuffix(text, suffix) {
			return
		}
		select {
		case <-changed:
		case <-h.ctx.Done():
			h.t.Fatalf("client has %q, not %q", text, suffix)
		}
	}
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var _ io.Writer = (*buffer)(nil)

func exited(code int) agentv1.Exit { return agentv1.Exit{Code: code, At: time.Now()} }
