package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/output"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

func (p *process) acquire(ctx context.Context, action string) error {
	select {
	case p.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s %s: %w", action, p.subject(), context.Cause(ctx))
	}
}

// maxExecs bounds the exec'd processes that run at once. Each has up to four of the channel's streams, and the rest of
// channel.MaxStreams is for other calls.
const maxExecs = 28

// admit waits until another exec'd process may run. The caller calls release when the process was not started, or with
// its end.
func (t *processes) admit(ctx context.Context, id Process) (release func(), err error) {
	if id.Exec == "" {
		return func() {}, nil
	}
	select {
	case t.execs <- struct{}{}:
		return func() { <-t.execs }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("start %s: %w: wait for the end of one of %d processes that were executed before: %w",
			subject(id), errdefs.ErrResourceExhausted, maxExecs, context.Cause(ctx))
	case <-t.work.Context().Done():
		return nil, fmt.Errorf("start %s: %w", subject(id), errClosed)
	}
}

// releaseAfter calls release when an exec'd process has ended. Output that its children hold open
// does not count.
func (t *processes) releaseAfter(p *process, release func()) {
	t.work.Go(func() {
		defer release()
		select {
		case <-p.done:
		case <-t.work.Context().Done():
		}
	})
}

// start runs a Ready process. It runs unless it has ended meanwhile.
func (p *process) start(ctx context.Context) (pid int, running bool, err error) {
	t := p.table
	t.mu.Lock()
	err = expect(p.subject(), "start", p.state, Ready)
	t.mu.Unlock()
	if err != nil {
		return 0, false, err
	}
	if err := p.launch(ctx); err != nil {
		return 0, false, p.startFailed(p.vm.Fault(err))
	}
	fault.Point("task.started")
	p.lockResized(ctx)
	defer t.mu.Unlock()
	if p.state != Ready {
		return p.pid, false, nil // the VM has ended meanwhile
	}
	p.setRunning()
	t.storeOrLog(p.id.Container)
	t.emit(Event{Kind: ProcessStarted, Process: p.id, PID: p.pid})
	return p.pid, true, nil
}

// sizedSpec returns the specification of an exec'd process with the size of its terminal, if that is known.
func (p *process) sizedSpec() (json.RawMessage, error) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	if p.size == nil {
		return p.spec, nil
	}
	p.sized = p.size
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(p.spec, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("%w: its process must be a JSON object", errdefs.ErrInvalidArgument)
	}
	size, err := json.Marshal(map[string]uint16{"width": p.size.Width, "height": p.size.Height})
	if err != nil {
		return nil, err
	}
	fields["consoleSize"] = size
	return json.Marshal(fields)
}

// lockResized locks mu. Before that it sets a size of the terminal that has come during the start.
func (p *process) lockResized(ctx context.Context) {
	t := p.table
	for {
		t.mu.Lock()
		size := p.size
		if size == p.sized {
			return
		}
		p.sized = size
		t.mu.Unlock()
		if err := p.vm.Agent.Resize(ctx, *size); err != nil && t.work.Context().Err() == nil {
			t.log.Warn("set the size of a terminal", "error", err)
		}
	}
}

// launch runs a process in the guest.
func (p *process) launch(ctx context.Context) error {
	if p.startErr != nil {
		return p.startErr
	}
	if p.id.Exec == "" {
		return p.vm.Agent.Start(ctx, p.id)
	}
	spec, err := p.sizedSpec()
	if err != nil {
		return err
	}
	created, err := p.vm.Agent.Exec(ctx, agentv1.Exec{
		Process: p.id, Spec: spec, Terminal: p.terminal, Stdin: p.hasStdin(), KeepStdin: p.host != nil,
	})
	if err == nil {
		p.table.mu.Lock()
		defer p.table.mu.Unlock()
		p.pid, p.spec = created.PID, nil
	}
	return err
}

// startFailed ends a process that the agent refused to start. After any other error the process stays Ready, because it
// may be running.
func (p *process) startFailed(err error) error {
	err = fmt.Errorf("start %s: %w", p.subject(), err)
	var refusal *agentv1.Error
	if !errors.As(err, &refusal) {
		return err
	}
	exit := Exit{Code: 128, Reason: ReasonCannotRun, Message: refusal.Error(), At: now()}
	switch {
	case errors.Is(err, agentv1.ErrNoCommand):
		exit.Code = 127
	case errors.Is(err, agentv1.ErrNotExec):
		exit.Code = 126
	}
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.finish(exit)
	return err
}

// signal sends a signal to a process of the running VM, or to one that has ended.
func (p *process) signal(ctx context.Context, sig unix.Signal, all bool) error {
	t := p.table
	t.mu.Lock()
	state := p.state
	if state == Ready && (p.id.Exec != "" || p.startErr != nil) {
		// The guest does not know the process yet and never will.
		p.finish(neverStarted())
		t.mu.Unlock()
		return nil
	}
	// A process that has ended seems to run while its last output waits for a reader.
	unread := sig == unix.SIGKILL && t.noteKill(p.id)
	t.mu.Unlock()
	if state == Stopped && unread {
		return nil
	}
	if state == Stopped {
		return fmt.Errorf("signal %s: %w: it has ended", p.subject(), errdefs.ErrNotFound)
	}
	err := p.vm.Agent.Signal(ctx, agentv1.Signal{Process: p.id, Signal: int(sig), All: all})
	if errors.Is(err, errdefs.ErrNotFound) && unread {
		return nil
	}
	if errors.Is(err, errdefs.ErrNotFound) {
		return fmt.Errorf("signal %s: %w: it has ended", p.subject(), errdefs.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("signal %s: %w", p.subject(), p.vm.Fault(err))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.state == Ready {
		p.await() // the signal may have killed it
	}
	return nil
}

func neverStarted() Exit {
	return Exit{Code: 137, Signal: 9, Reason: ReasonNeverStarted, At: now()}
}

// resizeLater keeps the size for the start of an exec'd process, and reports whether that is still to come.
func (p *process) resizeLater(size *agentv1.Resize) bool {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	waits := p.state == Ready && p.id.Exec != ""
	if waits {
		p.size = size
	}
	return waits
}

// become changes the state of a process that was paused or resumed.
func (p *process) become(action string, from, to State, kind EventKind) error {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	if err := expect(p.subject(), action, p.state, from); err != nil {
		return err // it ended meanwhile
	}
	p.state = to
	p.table.storeOrLog(p.id.Container)
	p.table.emit(Event{Kind: kind, Process: p.id, PID: p.pid})
	return nil
}

// setRunning marks the process as running, reads its output and waits for its end. The caller holds mu.
func (p *process) setRunning() {
	p.state = Running
	if p.startedAt.IsZero() {
		p.startedAt = now()
	}
	close(p.started)
	p.startPump()
}

// startPump reads a started process's output and waits for its end; the caller holds mu.
func (p *process) startPump() {
	p.follow()
	p.await()
	p.table.watchOOM(p.vm)
}

// follow reads a process's output; the caller holds mu.
func (p *process) follow() {
	p.followed = true
	ctx := p.vm.Context()
	if p.host != nil {
		ctx, p.host.abandon = context.WithCancelCause(ctx)
	}
	p.table.work.Go(func() { p.pump(ctx) })
}

// pump copies a process's output to its log and its clients until it ends.
func (p *process) pump(ctx context.Context) {
	defer close(p.pumped)
	if p.streams() {
		// Until the first client attaches, the output stays in the guest and blocks the process when its buffer is
		// full.
		select {
		case <-p.attached:
		case <-ctx.Done():
		}
	}
	var both sync.WaitGroup
	for i, h := range p.out {
		if h == nil {
			continue
		}
		pump := output.Pump{
			Agent: p.vm.Agent, Ended: p.vm.VM.Done(), Process: p.id, Stream: logs.Stream(i),
			Hub: h, Log: p.log, Resumed: p.restored, Logger: p.table.log,
		}
		if p.host != nil {
			pump.Target = p.host.targets[i]
		}
		both.Go(func() { pump.Run(ctx) })
	}
	both.Wait()
}

// WaitProcess returns when the process has ended and its output has been
// written to its log.
func (t *processes) WaitProcess(ctx context.Context, id Process) (Exit, error) {
	p, err := t.get(id)
	if err != nil {
		return Exit{}, fmt.Errorf("wait: %w", err)
	}
	return p.awaitExit(ctx)
}

func (p *process) awaitExit(ctx context.Context) (Exit, error) {
	var err error
	select {
	case <-p.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-p.table.work.Context().Done():
		err = errClosed
	}
	select {
	case <-p.done: // takes precedence over any other end
		return *p.exit, nil
	default:
		return Exit{}, fmt.Errorf("wait for %s: %w", p.subject(), err)
	}
}
