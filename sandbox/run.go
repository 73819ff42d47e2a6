package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/output"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// operate acquires the process's semaphore and returns the VM of a running sandbox. The caller calls done unless there
// is an error.
func (s *Sandbox) operate(ctx context.Context, action string, id Process) (p *process, m *liveVM, done func(), err error) {
	if m, err = s.running(action+" a process of", Running); err != nil {
		return nil, nil, nil, err
	}
	s.mu.Lock()
	p, err = s.find(id)
	s.mu.Unlock()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", action, err)
	}
	if err := p.acquire(ctx, action); err != nil {
		return nil, nil, nil, err
	}
	return p, m, func() { <-p.op }, nil
}

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
func (s *Sandbox) admit(ctx context.Context, id Process) (release func(), err error) {
	if id.Exec == "" {
		return func() {}, nil
	}
	select {
	case s.execs <- struct{}{}:
		return func() { <-s.execs }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("start %s: %w: wait for the end of one of %d processes that were executed before: %w",
			subject(id), errdefs.ErrResourceExhausted, maxExecs, context.Cause(ctx))
	case <-s.ctx.Done():
		return nil, fmt.Errorf("start %s: %w", subject(id), errClosed)
	}
}

// releaseAfter calls release when an exec'd process has ended; the caller holds mu. Output that its children hold open
// does not count.
func (s *Sandbox) releaseAfter(p *process, release func()) {
	s.spawn(func() {
		defer release()
		select {
		case <-p.done:
		case <-s.ctx.Done():
		}
	})
}

// StartProcess runs a Ready process and returns its PID in the guest. A missing command ends the process with code 127,
// and one that cannot be executed with 126. The error matches agentv1.ErrNoCommand or ErrNotExec. While maxExecs exec'd
// processes run, another one waits. If ctx ends meanwhile, it matches errdefs.ErrResourceExhausted, and the process stays Ready.
func (s *Sandbox) StartProcess(ctx context.Context, id Process) (_ int, err error) {
	release, err := s.admit(ctx, id)
	if err != nil {
		return 0, err
	}
	running := false
	defer func() {
		if !running {
			release()
		}
	}()
	p, m, done, err := s.operate(ctx, "start", id)
	if err != nil {
		return 0, err
	}
	defer done()
	s.mu.Lock()
	err = expect(p.subject(), "start", p.state, Ready)
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	call, end := m.call(ctx, s.o.CallTimeout)
	defer end()
	if err := s.launch(call, m, p); err != nil {
		return 0, s.startFailed(p, m.fault(err))
	}
	fault.Point("task.started")
	s.lockResized(call, m, p)
	defer s.mu.Unlock()
	if p.state != Ready {
		return p.pid, nil // the VM has ended meanwhile
	}
	s.setRunning(p)
	running = true
	s.releaseAfter(p, release)
	s.storeContainerOrLog(id.Container)
	s.emit(Event{Kind: ProcessStarted, Process: id, PID: p.pid})
	return p.pid, nil
}

// sized returns the specification of an exec'd process with the size of its terminal, if that is known.
func (s *Sandbox) sized(p *process) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
func (s *Sandbox) lockResized(ctx context.Context, m *liveVM, p *process) {
	for {
		s.mu.Lock()
		size := p.size
		if size == p.sized {
			return
		}
		p.sized = size
		s.mu.Unlock()
		s.logIf("set the size of a terminal", m.agent.Resize(ctx, *size))
	}
}

func (s *Sandbox) launch(ctx context.Context, m *liveVM, p *process) error {
	if p.startErr != nil {
		return p.startErr
	}
	if p.id.Exec == "" {
		return m.agent.Start(ctx, p.id)
	}
	spec, err := s.sized(p)
	if err != nil {
		return err
	}
	created, err := m.agent.Exec(ctx, agentv1.Exec{
		Process: p.id, Spec: spec, Terminal: p.terminal, Stdin: p.hasStdin(), KeepStdin: p.host != nil,
	})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.pid, p.spec = created.PID, nil
	}
	return err
}

// startFailed ends a process that the agent refused to start. After any other error the process stays Ready, because it
// may be running.
func (s *Sandbox) startFailed(p *process, err error) error {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(p, exit)
	return err
}

// setRunning marks the process as running, reads its output and waits for its end. The caller holds mu.
func (s *Sandbox) setRunning(p *process) {
	p.state = Running
	if p.startedAt.IsZero() {
		p.startedAt = now()
	}
	close(p.started)
	s.startPump(p)
}

// startPump reads a started process's output and waits for its end; the caller holds mu.
func (s *Sandbox) startPump(p *process) {
	s.follow(p)
	s.await(p)
	s.watchOOM(p.vm)
}

// follow reads a process's output; the caller holds mu.
func (s *Sandbox) follow(p *process) {
	p.followed = true
	ctx := p.vm.ctx
	if p.host != nil {
		ctx, p.host.abandon = context.WithCancelCause(ctx)
	}
	s.spawn(func() { s.pump(ctx, p) })
}

// pump copies a process's output to its log and its clients until it ends.
func (s *Sandbox) pump(ctx context.Context, p *process) {
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
			Agent: p.vm.agent, Ended: p.vm.vm.Done(), Process: p.id, Stream: logs.Stream(i),
			Hub: h, Log: p.log, Resumed: p.restored, Logger: s.log,
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
func (s *Sandbox) WaitProcess(ctx context.Context, id Process) (Exit, error) {
	s.mu.Lock()
	p, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return Exit{}, fmt.Errorf("wait: %w", err)
	}
	return s.awaitExit(ctx, p)
}

func (s *Sandbox) awaitExit(ctx context.Context, p *process) (Exit, error) {
	var err error
	select {
	case <-p.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.ctx.Done():
		err = errClosed
	}
	select {
	case <-p.done: // takes precedence over any other end
		return *p.exit, nil
	default:
		return Exit{}, fmt.Errorf("wait for %s: %w", p.subject(), err)
	}
}
