// Package crun makes containers and starts further processes in them. The guest's launcher does both in most cases, because
// it needs less time, and the OCI runtime crun does the others. The agent does everything else itself, on the container's
// cgroup and its first process.
package crun

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/launcher"
	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
	"github.com/bulkhead-project/bulkhead/agent/internal/spec"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

// Runtime is a loaded crun. Its methods are safe for concurrent use.
type Runtime struct {
	// Version is crun's version.
	Version string

	program  *os.File
	state    string
	reaper   *reaper.Reaper
	launcher *launcher.Launcher // nil without one
	log      func(format string, args ...any)

	mu         sync.Mutex                     // guards the following
	containers map[string]*launcher.Container // of containers with exec'd processes
	made       map[string]*made               // the launcher's containers
}

// New loads the program into sealed memory. From a plain file, crun would copy itself into such memory at each start,
// and an emulator would translate each copy again.
func New(program, state string, r *reaper.Reaper) (*Runtime, error) {
	f, err := memfd.Program("crun", program)
	if err != nil {
		return nil, err
	}
	runtime := &Runtime{program: f, state: state, reaper: r, containers: map[string]*launcher.Container{}, made: map[string]*made{}}
	if err = os.MkdirAll(state, 0o700); err == nil {
		runtime.Version, err = runtime.version()
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("load crun: %w", err)
	}
	return runtime, nil
}

// version runs crun for its version, which also checks that it works.
func (r *Runtime) version() (string, error) {
	out, err := os.CreateTemp(r.state, "version")
	if err != nil {
		return "", fmt.Errorf("crun's version: %w", err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	child, err := r.start(Stdio{1: out}, "crun", "--version")
	if err != nil {
		return "", err
	}
	<-child.Done()
	buf := make([]byte, 256)
	n, err := out.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("crun's version: %w", err)
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	if child.Status().ExitStatus() != 0 || line == "" {
		return "", fmt.Errorf("crun fails: status %#x", int(child.Status()))
	}
	return strings.TrimPrefix(line, "crun version "), nil
}

// configFile is the specification's file in crun's directory of a container.
const configFile = "config.json"

// Stdio are the process's ends of its streams; nil is /dev/null. They are unused with a terminal.
type Stdio [3]*os.File

// Process describes a process to start.
type Process struct {
	ID      string // the container's
	Dir     string // directory for this process's files, empty at first
	Stdio   Stdio
	Console bool // with a terminal, which Create and Exec return

	Cgroup string // the container's directory
	// First is the container's first process, for Exec.
	First *reaper.Child

	state string // crun's directory, if not the runtime's
}

// Container describes a container to create.
type Container struct {
	Bundle string
	Spec   *spec.Spec
	// Ruled is set if the caller attaches the program for the specification's device rules. Otherwise crun loads it.
	Ruled bool
}

// Create creates a container. Its first process waits for Start. onExit is as in reaper.Adopt.
func (r *Runtime) Create(ctx context.Context, c Container, p Process, onExit func()) (*reaper.Child, *os.File, error) {
	if child, err := r.make(ctx, c, p, onExit); !errors.Is(err, launcher.ErrDeclined) {
		return child, nil, err
	}
	defer agentv1.Begin(ctx, agentv1.PartCrun)()
	config, err := c.Spec.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Bundle, configFile), config, 0o600)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("crun create: %w", err)
	}
	child, console, err := r.run(ctx, p, onExit, "create", "--bundle", c.Bundle)
	if err != nil {
		return nil, nil, err
	}
	if config, err = c.Spec.EncodeForExec(); err == nil {
		err = os.WriteFile(filepath.Join(r.state, p.ID, configFile), config, 0o600) // for further processes
	}
	if err != nil {
		return nil, nil, fmt.Errorf("crun create: %w", err)
	}
	return child, console, nil
}

// Exec runs an OCI process in a container.
func (r *Runtime) Exec(ctx context.Context, process json.RawMessage, p Process, onExit func()) (*reaper.Child, *os.File, error) {
	if child, err := r.launch(ctx, process, p, onExit); !errors.Is(err, launcher.ErrDeclined) {
		return child, nil, err
	}
	defer agentv1.Begin(ctx, agentv1.PartCrun)()
	file := filepath.Join(p.Dir, "process.json")
	err := r.handOver(p.ID)
	if err == nil {
		err = os.WriteFile(file, process, 0o600)
	}
	if err == nil && p.Console {
		p.state, err = r.stateFor(file, p)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("crun exec: %w", err)
	}
	return r.run(ctx, p, onExit, "exec", "--detach", "--process", file)
}

// stateFor creates a state directory for the exec of a process with a terminal. crun gives the terminal to the user in
// the container's specification, which is replaced by this process's there.
func (r *Runtime) stateFor(file string, p Process) (string, error) {
	state := filepath.Join(p.Dir, "state")
	own, theirs := filepath.Join(state, p.ID), filepath.Join(r.state, p.ID)
	var config map[string]json.RawMessage
	raw, err := os.ReadFile(filepath.Join(theirs, configFile))
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	if err == nil {
		config["process"], err = os.ReadFile(file)
	}
	if err == nil {
		raw, err = json.Marshal(config)
	}
	if err == nil {
		err = os.MkdirAll(own, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(own, configFile), raw, 0o600)
	}
	if err != nil {
		return "", err
	}
	files, err := os.ReadDir(theirs)
	for _, f := range files {
		if err == nil && f.Name() != configFile {
			err = os.Symlink(filepath.Join(theirs, f.Name()), filepath.Join(own, f.Name()))
		}
	}
	return state, err
}

// Start runs the program of a container's first process, which waits for it.
func (r *Runtime) Start(id string) error {
	r.mu.Lock()
	m := r.made[id]
	r.mu.Unlock()
	if m != nil {
		return m.created.Start()
	}
	fifo := filepath.Join(r.state, id, "exec.fifo")
	// The open fails without a reader: the container is gone then.
	f, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer f.Close()
	if err := os.Remove(fifo); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if _, err := f.Write([]byte{0}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return nil
}

// Forget removes the state of a container without processes.
func (r *Runtime) Forget(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, id)
	if m := r.made[id]; m != nil {
		m.created.Close()
		delete(r.made, id)
	}
	return os.RemoveAll(filepath.Join(r.state, id))
}

// Update applies the OCI resources in file.
func (r *Runtime) Update(ctx context.Context, id, file, dir string) error {
	if err := r.handOver(id); err != nil {
		return fmt.Errorf("crun update: %w", err)
	}
	return r.wait(ctx, r.state, dir, Stdio{}, "update", "--resources", file, id)
}

func (r *Runtime) run(ctx context.Context, p Process, onExit func(), args ...string) (_ *reaper.Child, console *os.File, err error) {
	pidFile := filepath.Join(p.Dir, "pid")
	args = append(args, "--pid-file", pidFile)
	var l *consoleListener
	if p.Console {
		if l, err = listenConsole(r.state); err != nil {
			return nil, nil, err
		}
		defer l.close()
		args = append(args, "--console-socket", l.path)
		p.Stdio = Stdio{}
	}
	release := r.reaper.Adopting()
	defer release()
	if err := r.wait(ctx, cmp.Or(p.state, r.state), p.Dir, p.Stdio, append(args, p.ID)...); err != nil {
		return nil, nil, err
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return nil, nil, fmt.Errorf("crun %s: %w", args[0], err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 {
		return nil, nil, fmt.Errorf("crun %s: process id %q", args[0], data)
	}
	if l != nil {
		if console, err = l.receive(); err != nil {
			_ = unix.Kill(pid, unix.SIGKILL)
			return nil, nil, fmt.Errorf("crun %s: %w", args[0], err)
		}
	}
	return r.reaper.Adopt(pid, onExit), console, nil
}

// wait runs crun and waits for its end.
func (r *Runtime) wait(ctx context.Context, state, dir string, stdio Stdio, args ...string) error {
	log := filepath.Join(dir, "crun.log")
	argv := append([]string{"crun", "--root=" + state, "--cgroup-manager=cgroupfs", "--log=" + log}, args...)
	child, err := r.start(stdio, argv...)
	if err != nil {
		return err
	}
	if state != r.state {
		hurry(child.PID())
	}
	select {
	case <-child.Done():
	case <-ctx.Done():
		_ = child.Signal(unix.SIGKILL)
		<-child.Done()
		return fmt.Errorf("crun %s: %w", args[0], context.Cause(ctx))
	}
	if status := child.Status(); status.ExitStatus() != 0 {
		return failure(args[0], log, status)
	}
	return nil
}

// hurry gives crun a higher priority than its children. crun sets the size of a terminal only after it has started
// the new process, which must not read it before.
func hurry(pid int) {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 1}
	_ = unix.SchedSetAttr(pid, &attr, 0) // if it fails, the size is nearly always in time anyway
}

func (r *Runtime) start(stdio Stdio, argv ...string) (*reaper.Child, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("crun: %w", err)
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Env: []string{"PATH=/usr/bin"}, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, f := range stdio {
		if f == nil {
			f = null
		}
		attr.Files = append(attr.Files, f.Fd())
	}
	return r.reaper.Start(fmt.Sprintf("/proc/self/fd/%d", r.program.Fd()), argv, attr)
}
