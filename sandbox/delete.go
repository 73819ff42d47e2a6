package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// DeleteProcess deletes a Ready or Stopped process and its files; deleting a container also deletes its exec'd
// processes. The exit is ReasonNeverStarted if the process was not started.
func (s *Sandbox) DeleteProcess(ctx context.Context, id Process) (Exit, error) {
	p, err := s.get(id)
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
	exit, err := s.forget(p)
	s.devices.Drop(p.vm, p.disks)
	if m != nil && id.Exec == "" {
		s.logIf("detach unused volumes", s.devices.Release(ctx, m))
	}
	return exit, err
}

// deletable returns the VM that still has the process, or nil.
func (s *Sandbox) deletable(p *process) (*liveVM, error) {
	if err := p.deletable(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vm == nil || p.vm != s.vm {
		return nil, nil
	}
	return s.vm, expect(s.subject(), "delete a process of", s.state.State, Running)
}

// deleteInGuest deletes the process in the guest, for a container after its exec'd processes.
func (s *Sandbox) deleteInGuest(ctx context.Context, m *liveVM, p *process) error {
	ctx, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	if p.id.Exec == "" {
		execs := s.ids(func(id Process) bool { return id.Container == p.id.Container && id.Exec != "" })
		for _, id := range execs {
			if err := deleteInGuest(ctx, m, id); err != nil {
				return err
			}
		}
	}
	return deleteInGuest(ctx, m, p.id)
}

func deleteInGuest(ctx context.Context, m *liveVM, id Process) error {
	_, err := m.Agent.Delete(ctx, id)
	if errors.Is(err, agentv1.ErrBusy) {
		// An interrupted start, or a child of a container that has ended.
		err = m.Agent.Signal(ctx, agentv1.Signal{Process: id, Signal: int(unix.SIGKILL), All: id.Exec == ""})
		if err == nil || errors.Is(err, errdefs.ErrNotFound) {
			if _, err = m.Agent.Wait(ctx, id); err == nil {
				_, err = m.Agent.Delete(ctx, id)
			}
		}
	}
	if errors.Is(err, errdefs.ErrNotFound) || m.Context().Err() != nil {
		return nil //nolint:nilerr // it is gone, with its VM or without
	}
	if err = m.Fault(err); errors.Is(err, ErrVMGone) {
		return nil
	}
	return err
}
