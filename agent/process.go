package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/crun"
	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
	"github.com/bulkhead-project/bulkhead/agent/internal/sched"
	"github.com/bulkhead-project/bulkhead/agent/internal/spec"
	"github.com/bulkhead-project/bulkhead/agent/internal/stdio"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// process is a process of a container. All fields but exit are set before it is published.
type process struct {
	name      agentv1.Process
	dir       string
	pid       int
	child     *reaper.Child
	console   *os.File
	stdout    *stdio.Output
	stderr    *stdio.Output // nil with a terminal
	stdin     *stdio.Input  // nil for /dev/null
	stdinOnce bool

	exited chan struct{}
	exit   agentv1.Exit // valid after exited is closed
	closer sync.Once
}

// launch describes how to start a process.
type launch struct {
	exec                       string          // empty for the container's first process
	process                    json.RawMessage // an exec's OCI process
	first                      *process        // an exec's container's
	spec                       *spec.Spec      // a container's
	ruled                      bool            // see crun.Container
	terminal, stdin, stdinOnce bool
}

// launch starts a process and adds it to the container.
func (a *Agent) launch(ctx context.Context, c *container, l launch) (*process, error) {
	dir := filepath.Join(c.dir, "init")
	if l.exec != "" {
		dir = filepath.Join(c.dir, "exec-"+l.exec)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &process{
		name: agentv1.Process{Container: c.id, Exec: l.exec}, dir: dir,
		stdinOnce: l.stdinOnce, exited: make(chan struct{}),
	}
	var theirs crun.Stdio
	defer func() {
		for _, f := range theirs {
			if f != nil {
				f.Close()
			}
		}
	}()
	if !l.terminal {
		if err := p.pipes(&theirs, l.stdin); err != nil {
			return nil, err
		}
	}
	var oomKilled bool
	var kills uint64
	onExit := func() { oomKilled, kills = c.tookOOM() }
	cp := crun.Process{ID: c.id, Dir: dir, Stdio: theirs, Console: l.terminal, Cgroup: string(c.cgroup)}
	var err error
	if l.exec == "" {
		p.child, p.console, err = a.crun.Create(ctx, crun.Container{Bundle: c.dir, Spec: l.spec, Ruled: l.ruled}, cp, onExit)
	} else {
		cp.First = l.first.child
		p.child, p.console, err = a.crun.Exec(ctx, l.process, cp, onExit)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	p.pid = p.child.PID()
	if l.terminal {
		p.stdout = stdio.NewOutput(p.console)
		if l.stdin {
			p.stdin = stdio.NewInput(keyboard{p.console}, p.endOfTerminal)
		}
	}
	go func() {
		<-p.child.Done()
		if l.exec == "" && c.sharedPID {
			// With its own namespace, the kernel would have killed them.
			if err := c.cgroup.SignalAll(unix.SIGKILL); err != nil && !os.IsNotExist(err) {
				Log("container %s: kill its remaining processes: %v", c.id, err)
			}
		}
		p.exit = exitOf(p.child.Status(), oomKilled)
		p.exit.OOMKills = kills
		close(p.exited)
		if p.stdin != nil {
			p.stdin.Close()
		}
		if l.terminal {
			p.stdout.Hangup()
		}
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.procs[l.exec] = p
	return p, nil
}

// pipes creates the process's streams.
func (p *process) pipes(theirs *crun.Stdio, stdin bool) error {
	var err error
	var ours *os.File
	if stdin {
		if theirs[0], ours, err = os.Pipe(); err != nil {
			return fmt.Errorf("stdin: %w", err)
		}
		p.stdin = stdio.NewInput(ours, nil)
	}
	for i, out := range map[int]**stdio.Output{1: &p.stdout, 2: &p.stderr} {
		if ours, theirs[i], err = os.Pipe(); err != nil {
			p.close()
			return fmt.Errorf("output: %w", err)
		}
		*out = stdio.NewOutput(ours)
	}
	return nil
}

// keyboard is the input side of a terminal. Closing it keeps the output side open.
type keyboard struct{ *os.File }

// Close unblocks pending writes.
func (k keyboard) Close() error { return k.SetWriteDeadline(time.Unix(1, 0)) }

// endOfTerminal types the terminal's end-of-file character.
func (p *process) endOfTerminal() error {
	_, err := p.console.Write([]byte{4})
	return err
}

// close closes a process's streams and discards their data.
func (p *process) close() {
	p.closer.Do(func() {
		if p.stdin != nil {
			p.stdin.Close()
		}
		for _, o := range []*stdio.Output{p.stdout, p.stderr} {
			if o != nil {
				o.Close()
			}
		}
	})
}

func exitOf(status unix.WaitStatus, oomKilled bool) agentv1.Exit {
	e := agentv1.Exit{Code: status.ExitStatus(), At: time.Now().UTC()}
	if status.Signaled() {
		e.Signal = int(status.Signal())
		e.Code = 128 + e.Signal
	}
	e.OOMKilled = oomKilled && e.Code != 0
	return e
}

// tookOOM reports whether the kernel's OOM killer has killed processes of the container since the last call, and how
// many in all.
func (c *container) tookOOM() (more bool, kills uint64) {
	kills = c.cgroup.OOMKills()
	c.mu.Lock()
	defer c.mu.Unlock()
	more = kills > c.oom
	c.oom = max(c.oom, kills)
	return more, kills
}

func (a *Agent) process(name agentv1.Process) (*container, *process, error) {
	c, err := a.container(name.Container)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.procs[name.Exec]
	if p == nil {
		return nil, nil, fmt.Errorf("process %.128q of container %s: %w", name.Exec, c.id, errdefs.ErrNotFound)
	}
	return c, p, nil
}

func (a *Agent) exec(ctx context.Context, r agentv1.Exec) (agentv1.Created, error) {
	c, first, err := a.process(agentv1.Process{Container: r.Container})
	if err != nil {
		return agentv1.Created{}, err
	}
	fail := func(err error) (agentv1.Created, error) {
		return agentv1.Created{}, fmt.Errorf("exec %.128s in container %s: %w", r.Exec, c.id, err)
	}
	if !containerv1.ValidID(r.Exec) {
		return agentv1.Created{}, fmt.Errorf("exec id %.128q: %w", r.Exec, errdefs.ErrInvalidArgument)
	}
	c.mu.Lock()
	started, paused := c.started, c.paused
	c.mu.Unlock()
	switch {
	case !started || first.hasExited():
		return fail(fmt.Errorf("the container is not running: %w", agentv1.ErrBusy))
	case paused:
		return fail(fmt.Errorf("the container is paused: %w", agentv1.ErrBusy))
	}
	end := agentv1.Begin(ctx, agentv1.PartSpec)
	described, err := spec.Process(r.Spec, a.guest(c), r.Terminal)
	if err != nil {
		return fail(err)
	}
	dir := filepath.Join(c.dir, "exec-"+r.Exec)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if os.IsExist(err) {
			err = errdefs.ErrAlreadyExists
		}
		return fail(err)
	}
	end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
	defer cancel()
	p, err := a.launch(ctx, c, launch{
		exec: r.Exec, process: described, first: first, terminal: r.Terminal, stdin: r.Stdin, stdinOnce: !r.KeepStdin,
	})
	if err == nil {
		if err = c.applySchedule(p, described); err != nil {
			c.abandon(p)
		}
	}
	if err != nil {
		os.RemoveAll(dir)
		refused := spec.Refusal(described, err)
		if c.verbatim {
			refused = spec.Words(described, err)
		}
		if refused != nil {
			return agentv1.Created{}, refused
		}
		return fail(err)
	}
	return agentv1.Created{PID: p.pid}, nil
}

// applySchedule sets the scheduling attributes of an exec'd process, which has just started.
func (c *container) applySchedule(p *process, described json.RawMessage) error {
	own, err := sched.Of(described)
	if err != nil {
		return err
	}
	return own.Or(c.schedule).Apply(p.pid, true)
}

// abandon kills an exec'd process that its client must not see.
func (c *container) abandon(p *process) {
	_ = p.child.Signal(unix.SIGKILL) // it may have ended
	<-p.exited
	p.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.procs, p.name.Exec)
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (a *Agent) signal(_ context.Context, r agentv1.Signal) (none, error) {
	c, p, err := a.process(r.Process)
	if err != nil {
		return none{}, err
	}
	sig := syscall.Signal(r.Signal)
	if sig < 0 || sig > 64 {
		return none{}, fmt.Errorf("signal %d: %w", r.Signal, errdefs.ErrInvalidArgument)
	}
	if r.All {
		err = c.cgroup.SignalAll(sig)
	} else {
		err = p.child.Signal(sig)
	}
	if errors.Is(err, unix.ESRCH) || os.IsNotExist(err) {
		err = fmt.Errorf("it has ended: %w", errdefs.ErrNotFound)
	}
	if err != nil {
		return none{}, fmt.Errorf("signal %s to process %s of container %s: %w", strconv.Itoa(r.Signal), p.name.Exec, c.id, err)
	}
	return none{}, nil
}

func (a *Agent) wait(ctx context.Context, name agentv1.Process) (agentv1.Exit, error) {
	_, p, err := a.process(name)
	if err != nil {
		return agentv1.Exit{}, err
	}
	select {
	case <-p.exited:
		return p.exit, nil
	case <-ctx.Done():
		return agentv1.Exit{}, ctx.Err()
	}
}

func (a *Agent) delete(_ context.Context, name agentv1.Process) (agentv1.Exit, error) {
	c, err := a.lock(name.Container)
	if err != nil {
		return agentv1.Exit{}, err
	}
	defer c.op.Unlock()
	_, p, err := a.process(name)
	if err != nil && name.Exec == "" {
		// Continue a removal that failed.
		return agentv1.Exit{}, a.remove(c)
	}
	if err != nil {
		return agentv1.Exit{}, err
	}
	busy := fmt.Errorf("process %s of container %s is still running: %w", name.Exec, c.id, agentv1.ErrBusy)
	if name.Exec != "" {
		if !p.hasExited() {
			return agentv1.Exit{}, busy
		}
		p.close()
		c.mu.Lock()
		delete(c.procs, name.Exec)
		c.mu.Unlock()
		return p.exit, os.RemoveAll(p.dir)
	}
	if c.started && !p.hasExited() {
		return agentv1.Exit{}, busy
	}
	if err := a.remove(c); err != nil {
		return agentv1.Exit{}, err
	}
	<-p.exited // remove has killed one that was never started
	return p.exit, nil
}

func (a *Agent) resize(_ context.Context, r agentv1.Resize) (none, error) {
	_, p, err := a.process(r.Process)
	if err != nil {
		return none{}, err
	}
	if p.console == nil {
		return none{}, fmt.Errorf("process has no terminal: %w", errdefs.ErrInvalidArgument)
	}
	conn, err := p.console.SyscallConn()
	if err != nil {
		return none{}, err
	}
	var ioctl error
	err = conn.Control(func(fd uintptr) {
		ioctl = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: r.Height, Col: r.Width})
	})
	if err == nil {
		err = ioctl
	}
	if err != nil {
		return none{}, fmt.Errorf("resize: %w", err)
	}
	return none{}, nil
}
