package containerd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	eventsapi "github.com/containerd/containerd/api/events"
)

// fake is a Runtime without processes.
type fake struct {
	mu        sync.Mutex
	processes map[string]*fakeProcess // by container, or container/exec
	calls     []string
	created   map[string]CreateOptions
	fails     map[string]error         // by call, such as "start c"
	hangs     map[string]chan struct{} // by call, until closed
	pids      int
}

type fakeProcess struct {
	f      *fake
	name   string
	pid    int
	exited chan struct{}
	once   sync.Once
	exit   Exit
	err    error // of Wait
}

func newFake() *fake {
	return &fake{
		processes: map[string]*fakeProcess{}, created: map[string]CreateOptions{}, fails: map[string]error{},
		hangs: map[string]chan struct{}{}, pids: 100,
	}
}

func (f *fake) call(ctx context.Context, format string, args ...any) error {
	name := fmt.Sprintf(format, args...)
	f.mu.Lock()
	f.calls = append(f.calls, name)
	err, hang := f.fails[name], f.hangs[name]
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// set makes a call fail, or with a nil error succeed.
func (f *fake) set(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails[name] = err
}

// hang makes a call hang until the returned function is called.
func (f *fake) hang(name string) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{})
	f.hangs[name] = c
	return sync.OnceFunc(func() { close(c) })
}

func (f *fake) called(name string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == name {
			n++
		}
	}
	return n
}

func (f *fake) add(name string) *fakeProcess {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pids++
	p := &fakeProcess{f: f, name: name, pid: f.pids, exited: make(chan struct{})}
	f.processes[name] = p
	return p
}

func (f *fake) process(name string) *fakeProcess {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.processes[name]
}

// end ends a process.
func (p *fakeProcess) end(exit Exit) {
	p.once.Do(func() {
		if exit.At.IsZero() {
			exit.At = time.Unix(1700000000, 0)
		}
		p.exit = exit
		close(p.exited)
	})
}

func (f *fake) Create(ctx context.Context, c CreateOptions) (Process, error) {
	if err := f.call(ctx, "create %s", c.ID); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.created[c.ID] = c
	f.mu.Unlock()
	return f.add(c.ID), nil
}

func (f *fake) Start(ctx context.Context, id string) error { return f.call(ctx, "start %s", id) }

func (f *fake) Exec(ctx context.Context, e ExecOptions) (Process, error) {
	if err := f.call(ctx, "exec %s/%s %s", e.Container, e.ID, e.Spec); err != nil {
		return nil, err
	}
	return f.add(e.Container + "/" + e.ID), nil
}

func (f *fake) KillAll(ctx context.Context, id string, signal unix.Signal) error {
	return f.call(ctx, "kill all %s %d", id, signal)
}

func (f *fake) Pause(ctx context.Context, id string) error  { return f.call(ctx, "pause %s", id) }
func (f *fake) Resume(ctx context.Context, id string) error { return f.call(ctx, "resume %s", id) }

func (f *fake) Update(ctx context.Context, id string, resources []byte) error {
	return f.call(ctx, "update %s %s", id, resources)
}

func (f *fake) Stats(ctx context.Context, id string) (*stats.Metrics, error) {
	return &stats.Metrics{Pids: &stats.PidsStat{Current: 5}}, f.call(ctx, "stats %s", id)
}

func (f *fake) Delete(ctx context.Context, id string) error {
	if p := f.process(id); p != nil {
		p.end(Exit{Status: 137})
	}
	return f.call(ctx, "delete %s", id)
}

func (p *fakeProcess) PID() int { return p.pid }

func (p *fakeProcess) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.exited:
		return p.exit, p.err
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
}

func (p *fakeProcess) Signal(ctx context.Context, signal unix.Signal) error {
	if signal == unix.SIGKILL {
		p.end(Exit{Status: 137})
	}
	return p.f.call(ctx, "signal %s %d", p.name, signal)
}

func (p *fakeProcess) Resize(ctx context.Context, width, height uint16) error {
	return p.f.call(ctx, "resize %s %dx%d", p.name, width, height)
}

var errFake = errors.New("broken")

// published records events, as topics with the ids of their processes.
type published struct {
	mu     sync.Mutex
	list   []string
	bodies []proto.Message
}

func (p *published) Publish(topic string, m proto.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := topic
	switch m := m.(type) {
	case interface{ GetExecID() string }:
		name += " " + m.GetExecID()
	case *eventsapi.TaskExit:
		name += fmt.Sprintf(" %s %d", m.ID, m.ExitStatus)
	case interface{ GetContainerID() string }:
		name += " " + m.GetContainerID()
	}
	p.list = append(p.list, name)
	p.bodies = append(p.bodies, m)
}

func (p *published) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.list...)
}
