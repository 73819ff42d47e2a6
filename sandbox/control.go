package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// live returns a process in one of the wanted states, its VM, and a bounded context for a call to the agent.
func (s *Sandbox) live(ctx context.Context, action string, id Process, want ...State) (*process, *liveVM, context.Context, func(), error) {
	m, err := s.running(action+" a process of", Running)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	s.mu.Lock()
	p, err := s.find(id)
	if err == nil {
		err = expect(p.subject(), action, p.state, want...)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, nil, nil, nil, err
	}
	ctx, done := m.call(ctx, s.o.CallTimeout)
	return p, m, ctx, done, nil
}

// SignalProcess sends sig to a process, or with all to every process of its container. A process that has ended is
// errdefs.ErrNotFound, unless its files still get output and sig is SIGKILL, which ends that.
func (s *Sandbox) SignalProcess(ctx context.Context, id Process, sig unix.Signal, all bool) error {
	if sig < 1 || sig > 64 {
		return fmt.Errorf("signal %s: %w: number %d", subject(id), errdefs.ErrInvalidArgument, sig)
	}
	p, m, ctx, done, err := s.live(ctx, "signal", id, Ready, Running, Paused, Stopped)
	if err != nil {
		return err
	}
	defer done()
	s.mu.Lock()
	state := p.state
	if state == Ready && (id.Exec != "" || p.startErr != nil) {
		// The guest does not know the process yet and never will.
		s.finish(p, neverStarted())
		s.mu.Unlock()
		return nil
	}
	// A process that has ended seems to run while its last output waits for a reader.
	unread := sig == unix.SIGKILL && s.noteKill(id)
	s.mu.Unlock()
	if state == Stopped && unread {
		return nil
	}
	if state == Stopped {
		return fmt.Errorf("signal %s: %w: it has ended", p.subject(), errdefs.ErrNotFound)
	}
	err = m.agent.Signal(ctx, agentv1.Signal{Process: id, Signal: int(sig), All: all})
	if errors.Is(err, errdefs.ErrNotFound) && unread {
		return nil
	}
	if errors.Is(err, errdefs.ErrNotFound) {
		return fmt.Errorf("signal %s: %w: it has ended", p.subject(), errdefs.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("signal %s: %w", p.subject(), m.fault(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.state == Ready {
		s.await(p) // the signal may have killed it
	}
	return nil
}

func neverStarted() Exit {
	return Exit{Code: 137, Signal: 9, Reason: ReasonNeverStarted, At: now()}
}

// ResizeProcess sets the size of a process's terminal. An exec'd process that has not started gets it with its start.
func (s *Sandbox) ResizeProcess(ctx context.Context, id Process, width, height uint16) error {
	p, m, ctx, done, err := s.live(ctx, "resize", id, Ready, Running, Paused)
	if err != nil {
		return err
	}
	defer done()
	if !p.terminal {
		return fmt.Errorf("resize %s: %w: it has no terminal", p.subject(), errdefs.ErrInvalidArgument)
	}
	size := agentv1.Resize{Process: id, Width: width, Height: height}
	s.mu.Lock()
	waits := p.state == Ready && id.Exec != ""
	if waits {
		p.size = &size
	}
	s.mu.Unlock()
	if waits {
		return nil
	}
	return m.fault(m.agent.Resize(ctx, size))
}

// PauseContainer freezes a running container.
func (s *Sandbox) PauseContainer(ctx context.Context, id string) error {
	return s.freeze(ctx, "pause", id, Running, Paused, ContainerPaused, (*agentv1.Client).Pause)
}

// ResumeContainer is the inverse of PauseContainer.
func (s *Sandbox) ResumeContainer(ctx context.Context, id string) error {
	return s.freeze(ctx, "resume", id, Paused, Running, ContainerResumed, (*agentv1.Client).Resume)
}

func (s *Sandbox) freeze(ctx context.Context, action, id string, from, to State, kind EventKind,
	call func(*agentv1.Client, context.Context, agentv1.Process) error) error {
	p, m, done, err := s.operate(ctx, action, Process{Container: id})
	if err != nil {
		return err
	}
	defer done()
	_, _, ctx, end, err := s.live(ctx, action, p.id, from)
	if err != nil {
		return err
	}
	defer end()
	if err := call(m.agent, ctx, p.id); err != nil {
		if to == Paused {
			s.thaw(m, p, err)
		}
		return fmt.Errorf("%s %s: %w", action, p.subject(), m.fault(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := expect(p.subject(), action, p.state, from); err != nil {
		return err // it ended meanwhile
	}
	p.state = to
	s.storeContainerOrLog(id)
	s.emit(Event{Kind: kind, Process: p.id, PID: p.pid})
	return nil
}

// thaw undoes a pause that may still happen in the guest, because its answer did not come. The agent itself undoes a
// pause that it refuses.
func (s *Sandbox) thaw(m *liveVM, p *process, err error) {
	var refusal *agentv1.Error
	if errors.As(err, &refusal) {
		return
	}
	ctx, done := m.call(s.ctx, s.o.CallTimeout)
	defer done()
	s.logIf("resume a container that may be paused", m.agent.Resume(ctx, p.id))
}

// UpdateContainer changes a container's cgroup. resources is an OCI LinuxResources in JSON.
func (s *Sandbox) UpdateContainer(ctx context.Context, id string, resources []byte) error {
	p, m, ctx, done, err := s.live(ctx, "update", Process{Container: id}, Ready, Running, Paused)
	if err != nil {
		return err
	}
	defer done()
	if err := m.agent.Update(ctx, agentv1.Update{Container: id, Resources: resources}); err != nil {
		return fmt.Errorf("update %s: %w", p.subject(), m.fault(err))
	}
	return nil
}

// Resize changes the limits for all containers together, including the VM's CPUs, and the VM's memory; 0 is no change.
// The VM grows before the guest's limits change and shrinks after them. It is no error if the guest releases less
// memory.
func (s *Sandbox) Resize(ctx context.Context, limits agentv1.PodLimits, memoryMiB int) error {
	m, err := s.running("resize", Running)
	if err != nil {
		return err
	}
	ctx, done := m.call(ctx, s.o.CallTimeout)
	defer done()
	if err := s.grow(ctx, m, memoryMiB); err != nil {
		return fmt.Errorf("resize %s: %w", s.subject(), err)
	}
	if err := m.agent.Update(ctx, agentv1.Update{Limits: limits}); err != nil {
		return fmt.Errorf("resize %s: %w", s.subject(), m.fault(err))
	}
	s.shrink(ctx, m, memoryMiB)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.save()
}

func (s *Sandbox) shrink(ctx context.Context, m *liveVM, total int) {
	s.mu.Lock()
	have := s.state.MemoryMiB
	s.mu.Unlock()
	if total <= 0 || total >= have {
		return
	}
	reached, err := m.vm.Grow(ctx, total)
	s.logIf("memory not given back", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if reached > 0 && s.vm == m {
		s.state.MemoryMiB = reached
	}
}

// ReopenLog continues a container's log in f. The sandbox closes f eventually, also on error.
func (s *Sandbox) ReopenLog(_ context.Context, id string, f *os.File) error {
	s.mu.Lock()
	p, err := s.find(Process{Container: id})
	s.mu.Unlock()
	if err == nil && p.log == nil {
		err = fmt.Errorf("container %s: %w: it has no log", id, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("reopen the log: %w", err)
	}
	return p.log.Reopen(f)
}
