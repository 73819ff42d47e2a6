package sandbox

import (
	"context"
	"errors"
	"fmt"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

var errStopping = errors.New("the sandbox is being stopped")

// Stop kills the VM in any state. Processes that still run end with it, as ReasonVMKilled with code 137. The agent
// first gets a bounded time to flush its disks. Stop is idempotent, and interrupts a Start.
func (s *Sandbox) Stop(ctx context.Context) error { return s.stop(ctx, true) }

// stop is Stop. Delete skips the flush, because the disks are deleted next.
func (s *Sandbox) stop(ctx context.Context, flush bool) error {
	s.mu.Lock()
	if s.interrupt != nil {
		s.interrupt(errStopping)
	}
	s.mu.Unlock()
	if err := s.acquire(ctx, "stop"); err != nil {
		return err
	}
	defer s.release()
	s.mu.Lock()
	m, b, state := s.vm, s.booting, s.state.State
	s.mu.Unlock()
	if b != nil && state == Ready {
		b.cancel()
		<-b.done // the starter returns when its context ends
		m = b.vm
	}
	if m == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.state.State != Stopped {
			s.setStopped(ReasonStopped, "")
		}
		return nil
	}
	if state == Running && flush {
		call, done := m.Call(ctx, flushTimeout)
		s.logIf("unmount the volumes before the VM ends", s.endVolumes(call, m))
		if err := m.Agent.Flush(call); err != nil {
			s.log.Warn("guest did not flush its disks", "error", err)
		}
		done()
	}
	return s.kill(ctx, m, ReasonStopped, "")
}

// Pause stops the VM's processors and clock: Running becomes Paused.
func (s *Sandbox) Pause(ctx context.Context) error {
	if err := s.acquire(ctx, "pause"); err != nil {
		return err
	}
	defer s.release()
	m, err := s.running("pause", Running)
	if err != nil {
		return err
	}
	if err := m.VM.Pause(ctx); err != nil {
		return fmt.Errorf("pause %s: %w", s.subject(), errors.Join(err, m.VM.Resume(context.WithoutCancel(ctx))))
	}
	return s.become(m, Paused, SandboxPaused)
}

// Resume continues a Paused VM and sets its clock.
func (s *Sandbox) Resume(ctx context.Context) error {
	if err := s.acquire(ctx, "resume"); err != nil {
		return err
	}
	defer s.release()
	m, err := s.running("resume", Paused)
	if err != nil {
		return err
	}
	if err := m.VM.Resume(ctx); err != nil {
		return fmt.Errorf("resume %s: %w", s.subject(), err)
	}
	call, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	clock := m.Agent.SetTime(call, agentv1.SetTime{Time: now()})
	if err := s.become(m, Running, SandboxResumed); err != nil {
		return err
	}
	if clock != nil {
		return fmt.Errorf("set the clock of %s, which runs again: %w", s.subject(), clock)
	}
	return nil
}

// running returns the VM of a sandbox in the wanted state.
func (s *Sandbox) running(action string, want State) (*liveVM, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := expect(s.subject(), action, s.state.State, want); err != nil {
		return nil, err
	}
	if s.vm == nil {
		return nil, fmt.Errorf("%s %s: %w", action, s.subject(), ErrVMGone)
	}
	return s.vm, nil
}

func (s *Sandbox) become(m *liveVM, state State, kind EventKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vm != m {
		return fmt.Errorf("%s %s: %w", kind, s.subject(), ErrVMGone)
	}
	s.state.State = state
	s.emit(Event{Kind: kind})
	return s.save()
}
