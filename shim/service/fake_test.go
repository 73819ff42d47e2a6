package service_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/service"
)

// fake is a sandbox in memory. Calls that it lacks panic on the nil interface.
type fake struct {
	service.Sandbox

	mu      sync.Mutex
	calls   []string
	config  sandbox.Config
	state   sandbox.State
	started chan struct{} // Start waits for it, if not nil
	stopped chan struct{} // Stop waits for it, if not nil
	procs   map[sandbox.Process]*proc
	echo    string        // address that Forward connects to
	deaf    bool          // processes and trees read no input
	refuse  error         // error of a process's start
	cannot  *sandbox.Exit // exit after a refused start; nil if it has not ended
	fails   error         // error that call returns
	reason  string        // reason of the VM's end
	taken   []*os.File    // by calls that keep the files sent for them
}

type proc struct {
	config sandbox.ContainerConfig
	exec   sandbox.ExecConfig
	state  sandbox.State
	exit   *sandbox.Exit
	done   chan struct{}
}

func newFake() *fake {
	return &fake{state: sandbox.Ready, procs: map[sandbox.Process]*proc{}}
}

func (f *fake) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fake) noted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

func (f *fake) Create(_ context.Context, c sandbox.Config, files sandbox.Files) error {
	if files.Scratch != nil {
		files.Scratch.Close()
		f.note("scratch")
	}
	for _, card := range files.Cards {
		card.Close()
		f.note("card")
	}
	f.note("create")
	f.config = c
	return nil
}

func (f *fake) SetNetwork(_ context.Context, r agentv1.SetNetwork, taps []*os.File) error {
	var names []string
	for _, n := range r.Interfaces {
		if n == nil {
			n = &agentv1.Network{Name: "-"}
		}
		names = append(names, n.Name)
	}
	for _, tap := range taps {
		tap.Close()
	}
	f.note("network %s, %d taps", strings.Join(names, " "), len(taps))
	return nil
}

func (f *fake) Start(ctx context.Context) error {
	f.note("start")
	if f.started != nil {
		select {
		case <-f.started:
		case <-ctx.Done():
			f.note("start cancelled")
			return ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = sandbox.Running
	return nil
}

func (f *fake) Stop(ctx context.Context) error {
	if f.stopped != nil {
		<-f.stopped
	}
	return f.call("stop")
}

func (f *fake) Delete(_ context.Context, force bool) error { f.note("delete %v", force); return nil }

func (f *fake) Status() sandbox.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := sandbox.Status{State: f.state, MemoryMiB: 512, Phases: []sandbox.Phase{{Name: "machine", Microseconds: 5}}}
	for id, p := range f.procs {
		st.Processes = append(st.Processes, sandbox.ProcessStatus{Process: id, State: p.state, Exit: p.exit})
	}
	return st
}

func (f *fake) Stats(context.Context) (agentv1.PodStats, error) {
	return agentv1.PodStats{Memory: agentv1.Memory{Total: 100}}, nil
}

func (f *fake) ContainerStats(context.Context, string) (agentv1.Stats, error) {
	return agentv1.Stats{CPUUsec: 77, Pids: 3}, nil
}

func (f *fake) CreateContainer(_ context.Context, c sandbox.ContainerConfig) error {
	for _, file := range []*os.File{c.RootFile, c.Log} {
		if file != nil {
			file.Close()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := sandbox.Process{Container: c.ID}
	if f.procs[id] != nil {
		return fmt.Errorf("container %s: %w", c.ID, errdefs.ErrAlreadyExists)
	}
	f.procs[id] = &proc{config: c, state: sandbox.Ready, done: make(chan struct{})}
	return nil
}

func (f *fake) CreateExec(_ context.Context, e sandbox.ExecConfig) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.procs[e.Process] = &proc{exec: e, state: sandbox.Ready, done: make(chan struct{})}
	return nil
}

func (f *fake) find(id sandbox.Process) (*proc, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.procs[id]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("process %v: %w", id, errdefs.ErrNotFound)
}

func (f *fake) ProcessStatus(id sandbox.Process) (sandbox.ProcessStatus, error) {
	p, err := f.find(id)
	if err != nil {
		return sandbox.ProcessStatus{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return sandbox.ProcessStatus{Process: id, State: p.state, PID: 33, Exit: p.exit}, nil
}

func (f *fake) StartProcess(_ context.Context, id sandbox.Process) (int, error) {
	p, err := f.find(id)
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.state != sandbox.Ready {
		return 0, &sandbox.StateError{Subject: "container", Action: "start", State: p.state, Want: []sandbox.State{sandbox.Ready}}
	}
	if f.refuse != nil {
		if f.cannot != nil {
			p.state, p.exit = sandbox.Stopped, f.cannot
			close(p.done)
		}
		return 0, f.refuse
	}
	p.state = sandbox.Running
	f.calls = append(f.calls, "started")
	return 33, nil
}

func (f *fake) SignalProcess(_ context.Context, id sandbox.Process, sig unix.Signal, _ bool) error {
	p, err := f.find(id)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.state, p.exit = sandbox.Stopped, &sandbox.Exit{Code: 128 + int(sig), At: time.Unix(1700000000, 0)}
	close(p.done)
	return nil
}

func (f *fake) WaitProcess(ctx context.Context, id sandbox.Process) (sandbox.Exit, error) {
	p, err := f.find(id)
	if err != nil {
		return sandbox.Exit{}, err
	}
	select {
	case <-p.done:
		return *p.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (f *fake) DeleteProcess(_ context.Context, id sandbox.Process) (sandbox.Exit, error) {
	p, err := f.find(id)
	if err != nil {
		return sandbox.Exit{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.procs, id)
	if p.exit == nil {
		p.exit = &sandbox.Exit{Code: 137, Reason: sandbox.ReasonNeverStarted}
	}
	f.calls = append(f.calls, "deleted "+p.exit.Reason)
	return *p.exit, nil
}

func (f *fake) ResizeProcess(_ context.Context, _ sandbox.Process, width, height uint16) error {
	f.note("resize %dx%d", width, height)
	return nil
}

// Attach runs a process that copies its stdin to stdout and then ends with 0.
func (f *fake) Attach(ctx context.Context, id sandbox.Process, c sandbox.Streams) (sandbox.Exit, error) {
	p, err := f.find(id)
	if err != nil {
		return sandbox.Exit{}, err
	}
	if f.deaf {
		<-ctx.Done()
		return sandbox.Exit{}, ctx.Err()
	}
	if _, err := io.Copy(c.Stdout, c.Stdin); err != nil {
		f.note("stdin: %v", err)
		return sandbox.Exit{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.state, p.exit = sandbox.Stopped, &sandbox.Exit{Code: 3, At: time.Now()}
	close(p.done)
	return *p.exit, nil
}

func (f *fake) Forward(ctx context.Context, port uint16) (net.Conn, error) {
	f.note("forward %d", port)
	var d net.Dialer
	return d.DialContext(ctx, "tcp", f.echo)
}
