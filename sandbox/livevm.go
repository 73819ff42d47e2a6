package sandbox

import (
	"context"
	"fmt"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
)

// liveVM is the VM of a sandbox while it runs.
type liveVM = guest.Live

func (s *Sandbox) newVM(vm hypervisor.VM, resume bool) *liveVM {
	return guest.NewLive(s.work.Context(), vm, resume, s.o.Patience, func(m *liveVM, err error) {
		s.work.Go(func() { s.logIf("kill the VM", s.kill(s.work.Context(), m, ReasonVMKilled, err.Error())) })
	})
}

// kill kills a VM for the given reason and returns when the sandbox has handled its end. It ignores the end of ctx.
func (s *Sandbox) kill(ctx context.Context, m *liveVM, why, message string) error {
	m.SetReason(why, message)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	if err := m.VM.Kill(ctx); err != nil {
		return fmt.Errorf("kill the VM of %s: %w", s.subject(), err)
	}
	fault.Point("machine.killed")
	select {
	case <-m.Gone:
		return nil
	case <-s.work.Context().Done():
		return fmt.Errorf("kill the VM of %s: %w", s.subject(), errClosed)
	case <-ctx.Done():
		return fmt.Errorf("kill the VM of %s: %w", s.subject(), ctx.Err())
	}
}

// watch handles the VM's end: it ends every process that was alive and then stops the sandbox.
func (s *Sandbox) watch(m *liveVM) {
	select {
	case <-m.VM.Done():
	case <-s.work.Context().Done():
		return
	}
	s.drain()
	m.End()
	reason, message := m.Reason()
	exit := Exit{Code: 137, Signal: 9, Reason: ReasonVMKilled, Message: message, At: now()}
	if reason == ReasonOOMKilled {
		exit.Reason = reason
	}
	s.mu.Lock()
	s.endAll(exit)
	s.vm = nil
	s.state.VM = nil
	s.devices.Reset()
	s.setStopped(reason, message)
	s.mu.Unlock()
	s.logIf("close the VM's handle", m.Detach())
	close(m.Gone)
}

// setStopped makes the sandbox Stopped; the caller holds mu.
func (s *Sandbox) setStopped(reason, message string) {
	s.state.State, s.state.StoppedAt = Stopped, now()
	s.state.ExitReason, s.state.ExitMessage = reason, message
	s.saveOrLog()
	fault.Point("sandbox.stopped")
	s.emit(Event{Kind: SandboxStopped, Message: s.state.Why()})
	select {
	case <-s.stopped:
	default:
		close(s.stopped)
	}
}

func (s *Sandbox) logIf(what string, err error) {
	if err != nil && s.work.Context().Err() == nil {
		s.log.Warn(what, "error", err)
	}
}

func (s *Sandbox) correctClock(m *liveVM) error {
	if s.Status().State != Running {
		return nil // Resume sets the clock of a paused VM
	}
	ctx, done := m.Call(s.work.Context(), s.o.CallTimeout)
	defer done()
	return guest.CorrectClock(ctx, m.Agent)
}
