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

// DeleteProcess deletes a Ready or Stopped process and its files; deleting a container also deletes its exec'd
// processes. The exit is ReasonNeverStarted if the process was not started.
func (s *Sandbox) DeleteProcess(ctx context.Context, id Process) (Exit, error) {
	s.mu.Lock()
	p, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return Exit{}, fmt.Errorf("delete: %w", err)
	}
	if err := p.acquire(ctx, "delete"); err != nil {
		return Exit{}, err
	}
	defer func() { <-p.op }()
	m, err := s.deletable(p)
	if err != nil {
		return Exit{}, err
	}
	if m != nil {
		if err := s.deleteInGuest(ctx, m, p); err != nil {
			return Exit{}, fmt.Errorf("delete %s: %w", p.subject(), err)
		}
	}
	s.mu.Lock()
	exit, err := s.forget(p)
	s.mu.Unlock()
	if m != nil && id.Exec == "" {
		s.logIf("detach unused volumes", s.releaseVolumes(ctx, m))
	}
	return exit, err
}

// deletable returns the VM that still has the process, or nil.
func (s *Sandbox) deletable(p *process) (*liveVM, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.procs[p.id] != p {
		return nil, fmt.Errorf("delete %s: %w", p.subject(), errdefs.ErrNotFound)
	}
	if err := expect(p.subject(), "delete", p.state, Ready, Stopped); err != nil {
		return nil, err
	}
	if s.vm == nil || p.vm != s.vm {
		return nil, nil
	}
	return s.vm, expect(s.subject(), "delete a process of", s.state.State, Running)
}

// deleteInGuest deletes the process in the guest, for a container after its exec'd processes.
func (s *Sandbox) deleteInGuest(ctx context.Context, m *liveVM, p *process) error {
	ctx, done := m.call(ctx, s.o.CallTimeout)
	defer done()
	if p.id.Exec == "" {
		s.mu.Lock()
		var execs []Process
		for id := range s.procs {
			if id.Container == p.id.Container && id.Exec != "" {
				execs = append(execs, id)
			}
		}
		s.mu.Unlock()
		for _, id := range execs {
			if err := deleteInGuest(ctx, m, id); err != nil {
				return err
			}
		}
	}
	return deleteInGuest(ctx, m, p.id)
}

func deleteInGuest(ctx context.Context, m *liveVM, id Process) error {
	_, err := m.agent.Delete(ctx, id)
	if errors.Is(err, agentv1.ErrBusy) {
		// An interrupted start, or a child of a container that has ended.
		err = m.agent.Signal(ctx, agentv1.Signal{Process: id, Signal: int(unix.SIGKILL), All: id.Exec == ""})
		if err == nil || errors.Is(err, errdefs.ErrNotFound) {
			if _, err = m.agent.Wait(ctx, id); err == nil {
				_, err = m.agent.Delete(ctx, id)
			}
		}
	}
	if errors.Is(err, errdefs.ErrNotFound) || m.ctx.Err() != nil {
		return nil //nolint:nilerr // it is gone, with its VM or without
	}
	if err = m.fault(err); errors.Is(err, ErrVMGone) {
		return nil
	}
	return err
}

// forget removes a process that is deleted in the guest; the caller holds mu.
func (s *Sandbox) forget(p *process) (Exit, error) {
	s.finish(p, neverStarted())
	s.forgetFiles(p)
	if p.id.Exec != "" {
		delete(s.procs, p.id)
		s.emit(Event{Kind: ProcessDeleted, Process: p.id, PID: p.pid, Exit: p.exit})
		return *p.exit, s.storeContainer(p.id.Container)
	}
	for id, q := range s.procs {
		if id.Container == p.id.Container && id.Exec != "" {
			s.finish(q, neverStarted())
			s.forgetFiles(q)
			delete(s.procs, id)
			s.emit(Event{Kind: ProcessDeleted, Process: id, PID: q.pid, Exit: q.exit})
		}
	}
	delete(s.procs, p.id)
	p.closeLog()
	if p.vm != nil && p.vm == s.vm {
		for _, disk := range p.disks {
			s.slots.Drop(disk)
		}
	}
	s.emit(Event{Kind: ProcessDeleted, Process: p.id, PID: p.pid, Exit: p.exit})
	if err := s.store.locked(func() error { return os.RemoveAll(s.store.container(p.id.Container)) }); err != nil {
		return *p.exit, fmt.Errorf("delete %s: %w", p.subject(), err)
	}
	return *p.exit, nil
}
