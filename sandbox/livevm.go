package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/hostoom"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
)

// liveVM is a running VM with the connection to its agent.
type liveVM struct {
	vm    hypervisor.VM
	link  *guest.Link
	agent *agentv1.Client
	oom   hostoom.Count

	ctx    context.Context // ends with the VM
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed when the sandbox has handled the VM's end

	oomWatched bool // guarded by the sandbox's mu

	mu       sync.Mutex
	why, msg string // set if we kill the VM
}

func (s *Sandbox) newVM(vm hypervisor.VM, resume bool) *liveVM {
	m := &liveVM{vm: vm, gone: make(chan struct{}), oom: hostoom.Read(vm.Process().PID)}
	m.ctx, m.cancel = context.WithCancelCause(s.ctx)
	m.link = guest.NewLink(vm.Connect, resume, s.o.Patience, func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.spawn(func() { s.logIf("kill the VM", s.kill(s.ctx, m, ReasonVMKilled, err.Error())) })
	})
	m.agent = agentv1.NewClient(m.link.Open)
	return m
}

// call bounds a call to the agent by the VM's life and a time. It cancels the call early if the VM's process is
// stopped.
func (m *liveVM) call(ctx context.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.ctx, func() { end(context.Cause(m.ctx)) })
	m.checkStopped(ctx, end)
	return ctx, func() { stop(); end(nil); cancel() }
}

// stopPatience is the interval of checks of the VM's process during an unanswered call.
const stopPatience = time.Second

// checkStopped cancels an unanswered call if the VM's process has received SIGSTOP.
func (m *liveVM) checkStopped(ctx context.Context, end context.CancelCauseFunc) {
	look := time.AfterFunc(stopPatience, func() {
		if p := m.vm.Process(); p.Stopped() {
			end(fmt.Errorf("%w: process %d was stopped by a signal or a debugger", ErrVMStopped, p.PID))
		} else if ctx.Err() == nil {
			m.checkStopped(ctx, end)
		}
	})
	context.AfterFunc(ctx, func() { look.Stop() })
}

// endGrace bounds the delay between the end of the channel and the notice of the VM's end.
const endGrace = 500 * time.Millisecond

// fault converts the error of a call to the agent. An error caused by the VM's end matches ErrVMGone.
func (m *liveVM) fault(err error) error {
	var refusal *agentv1.Error
	if err == nil || errors.As(err, &refusal) || errors.Is(err, ErrVMGone) || errors.Is(err, ErrVMStopped) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	late := time.NewTimer(endGrace)
	defer late.Stop()
	select {
	case <-m.vm.Done():
		return fmt.Errorf("%w: %w", ErrVMGone, err)
	case <-late.C:
		return err
	}
}

// detach closes the handles of a VM and leaves it running.
func (m *liveVM) detach() error {
	m.cancel(ErrVMGone)
	return errors.Join(m.link.Close(), m.vm.Close())
}

func (m *liveVM) setWhy(why, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why == "" {
		m.why, m.msg = why, message
	}
}

// reason returns why the VM has ended, as a reason and as a message for users.
func (m *liveVM) reason() (reason, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.why != "":
		return m.why, m.msg
	case m.oom.Happened():
		return ReasonOOMKilled, "the host ran out of memory and killed the VM"
	case m.vm.Exit() != nil:
		return ReasonVMKilled, m.vm.Exit().Error()
	}
	return ReasonVMKilled, "the guest shut itself down"
}

// kill kills a VM for the given reason and returns when the sandbox has handled its end. It ignores the end of ctx.
func (s *Sandbox) kill(ctx context.Context, m *liveVM, why, message string) error {
	m.setWhy(why, message)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	if err := m.vm.Kill(ctx); err != nil {
		return fmt.Errorf("kill the VM of %s: %w", s.subject(), err)
	}
	fault.Point("machine.killed")
	select {
	case <-m.gone:
		return nil
	case <-s.ctx.Done():
		return fmt.Errorf("kill the VM of %s: %w", s.subject(), errClosed)
	case <-ctx.Done():
		return fmt.Errorf("kill the VM of %s: %w", s.subject(), ctx.Err())
	}
}

// drainTimeout bounds the wait for output that a dead VM has left in its socket.
const drainTimeout = 2 * time.Second

// watch handles the VM's end: it ends every process that was alive and then stops the sandbox.
func (s *Sandbox) watch(m *liveVM) {
	select {
	case <-m.vm.Done():
	case <-s.ctx.Done():
		return
	}
	s.drain()
	m.cancel(ErrVMGone)
	reason, message := m.reason()
	exit := Exit{Code: 137, Signal: 9, Reason: ReasonVMKilled, Message: message, At: now()}
	if reason == ReasonOOMKilled {
		exit.Reason = reason
	}
	s.mu.Lock()
	for _, p := range s.procs {
		if p.state != Stopped {
			s.finish(p, exit)
		}
	}
	s.vm = nil
	s.slots.Reset()
	s.state.VM, s.state.MemoryMiB, s.state.Cards = nil, 0, false
	s.setStopped(reason, message)
	s.mu.Unlock()
	s.logIf("close the VM's handle", m.detach())
	close(m.gone)
}

// why formats the exit for users.
func (s sandboxState) why() string {
	if s.ExitMessage == "" {
		return s.ExitReason
	}
	return s.ExitReason + ": " + s.ExitMessage
}

// setStopped makes the sandbox Stopped; the caller holds mu.
func (s *Sandbox) setStopped(reason, message string) {
	s.state.State, s.state.StoppedAt = Stopped, now()
	s.state.ExitReason, s.state.ExitMessage = reason, message
	s.saveOrLog()
	fault.Point("sandbox.stopped")
	s.emit(Event{Kind: SandboxStopped, Message: s.state.why()})
	select {
	case <-s.stopped:
	default:
		close(s.stopped)
	}
}

// drain waits until the output pumps have read the remaining output.
func (s *Sandbox) drain() {
	ctx, cancel := context.WithTimeout(s.ctx, drainTimeout)
	defer cancel()
	s.mu.Lock()
	var pumped []<-chan struct{}
	for _, p := range s.procs {
		if p.kept() && (p.state != Stopped || p.host != nil) {
			pumped = append(pumped, p.pumped)
		}
	}
	s.mu.Unlock()
	for _, done := range pumped {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Sandbox) logIf(what string, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.log.Warn(what, "error", err)
	}
}

// keepClock adjusts the guest's clock to the host's until the VM ends.
func (s *Sandbox) keepClock(m *liveVM) {
	tick := time.NewTicker(guest.ClockPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.logIf("correct the guest's clock", s.correctClock(m))
		case <-m.ctx.Done():
			return
		}
	}
}

func (s *Sandbox) correctClock(m *liveVM) error {
	if s.Status().State != Running {
		return nil // Resume sets the clock of a paused VM
	}
	ctx, done := m.call(s.ctx, s.o.CallTimeout)
	defer done()
	return guest.CorrectClock(ctx, m.agent)
}
