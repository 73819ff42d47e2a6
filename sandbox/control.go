package sandbox

import (
	"context"
	"errors"
	"fmt"

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
	p, err := s.getIn(id, action, want...)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	ctx, done := m.Call(ctx, s.o.CallTimeout)
	return p, m, ctx, done, nil
}

// operate acquires the process's semaphore and returns the VM of a running sandbox. The caller calls done unless there
// is an error.
func (s *Sandbox) operate(ctx context.Context, action string, id Process) (p *process, m *liveVM, done func(), err error) {
	if m, err = s.running(action+" a process of", Running); err != nil {
		return nil, nil, nil, err
	}
	if p, err = s.get(id); err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", action, err)
	}
	if err := p.acquire(ctx, action); err != nil {
		return nil, nil, nil, err
	}
	return p, m, func() { <-p.op }, nil
}

// StartProcess runs a Ready process and returns its PID in the guest. A missing command ends the process with code 127,
// and one that cannot be executed with 126. The error matches agentv1.ErrNoCommand or ErrNotExec. While maxExecs exec'd
// processes run, another one waits. If ctx ends meanwhile, it matches errdefs.ErrResourceExhausted, and the process stays Ready.
func (s *Sandbox) StartProcess(ctx context.Context, id Process) (int, error) {
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
	call, end := m.Call(ctx, s.o.CallTimeout)
	defer end()
	pid, running, err := p.start(call)
	if running {
		s.releaseAfter(p, release)
	}
	return pid, err
}

// SignalProcess sends sig to a process, or with all to every process of its container. A process that has ended is
// errdefs.ErrNotFound, unless its files still get output and sig is SIGKILL, which ends that.
func (s *Sandbox) SignalProcess(ctx context.Context, id Process, sig unix.Signal, all bool) error {
	if sig < 1 || sig > 64 {
		return fmt.Errorf("signal %s: %w: number %d", subject(id), errdefs.ErrInvalidArgument, sig)
	}
	p, _, ctx, done, err := s.live(ctx, "signal", id, Ready, Running, Paused, Stopped)
	if err != nil {
		return err
	}
	defer done()
	return p.signal(ctx, sig, all)
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
	if size := (agentv1.Resize{Process: id, Width: width, Height: height}); !p.resizeLater(&size) {
		return m.Fault(m.Agent.Resize(ctx, size))
	}
	return nil
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
	if err := call(m.Agent, ctx, p.id); err != nil {
		if to == Paused {
			s.thaw(m, p, err)
		}
		return fmt.Errorf("%s %s: %w", action, p.subject(), m.Fault(err))
	}
	return p.become(action, from, to, kind)
}

// thaw undoes a pause that may still happen in the guest, because its answer did not come. The agent itself undoes a
// pause that it refuses.
func (s *Sandbox) thaw(m *liveVM, p *process, err error) {
	var refusal *agentv1.Error
	if errors.As(err, &refusal) {
		return
	}
	ctx, done := m.Call(s.work.Context(), s.o.CallTimeout)
	defer done()
	s.logIf("resume a container that may be paused", m.Agent.Resume(ctx, p.id))
}

// UpdateContainer changes a container's cgroup. resources is an OCI LinuxResources in JSON.
func (s *Sandbox) UpdateContainer(ctx context.Context, id string, resources []byte) error {
	p, m, ctx, done, err := s.live(ctx, "update", Process{Container: id}, Ready, Running, Paused)
	if err != nil {
		return err
	}
	defer done()
	if err := m.Agent.Update(ctx, agentv1.Update{Container: id, Resources: resources}); err != nil {
		return fmt.Errorf("update %s: %w", p.subject(), m.Fault(err))
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
	ctx, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	if err := s.devices.Grow(ctx, m, memoryMiB); err != nil {
		return fmt.Errorf("resize %s: %w", s.subject(), err)
	}
	if err := m.Agent.Update(ctx, agentv1.Update{Limits: limits}); err != nil {
		return fmt.Errorf("resize %s: %w", s.subject(), m.Fault(err))
	}
	s.logIf("memory not given back", s.devices.Shrink(ctx, m, memoryMiB))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.save()
}
