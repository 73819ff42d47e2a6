package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// Restore returns the sandbox in StateDir, with the VM, the containers and the logs as the previous shim left them. If
// the VM has ended, the sandbox is stopped. A VM that was still being started is killed. On an error, Restore changes
// nothing on disk, ends no process, and may be retried.
func Restore(ctx context.Context, o Options, f RestoreFiles) (s *Sandbox, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("restore the sandbox in %s: %w", o.StateDir, err)
			f.close()
		}
	}()
	if o.Adopt == nil {
		return nil, fmt.Errorf("%w: Options.Adopt must be set", errdefs.ErrInvalidArgument)
	}
	if s, err = newSandbox(o); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	s.deliverEvents()
	if err := s.reattach(ctx, f); err != nil {
		s.cancel()
		s.work.Wait()
		return nil, err
	}
	return s, nil
}

func (f RestoreFiles) close() {
	if f.Scratch != nil {
		closeQuietly(f.Scratch)
	}
	for _, log := range f.Logs {
		closeQuietly(log)
	}
}

// load reads the stored state and changes nothing.
func (s *Sandbox) load() error {
	self := s.state.Owner
	st, err := s.store.readState()
	if err != nil {
		return err
	}
	if st.Owner != self && st.Owner.Alive() {
		return fmt.Errorf("%w: another process has the sandbox: %d", errdefs.ErrConflict, st.Owner.PID)
	}
	st.Owner = self
	s.state = st
	c, err := s.store.readConfig()
	if errors.Is(err, os.ErrNotExist) {
		return nil // the sandbox has no pod yet
	}
	if err != nil {
		return err
	}
	s.config, s.created = c, true
	s.slots.Init(c.VM)
	ids, err := s.store.containers()
	if err != nil {
		return err
	}
	for _, id := range ids {
		c, st, err := s.store.readContainer(id)
		if err != nil {
			return err
		}
		for _, stored := range st.Processes {
			s.loadProcess(c, stored)
		}
	}
	return nil
}

func (s *Sandbox) loadProcess(c containerRecord, st processState) {
	stdio := st.stdio()
	if st.Exec == "" {
		stdio = c.stdio()
	}
	p := newProcess(Process{Container: c.ID, Exec: st.Exec}, nil, st.Terminal, stdio)
	p.state, p.pid, p.exit = st.State, st.PID, st.Exit
	p.createdAt, p.startedAt, p.user, p.restored = st.CreatedAt, st.StartedAt, st.User, true
	p.oomKills = st.OOMKills
	if st.Exec == "" {
		p.disks = c.disks()
	} else if p.host == nil {
		close(p.attached) // its client is gone
	}
	if p.host != nil {
		p.host.leased = st.Leased
	}
	if p.state != Ready {
		close(p.started)
	}
	if p.state == Stopped {
		close(p.done)
		if !p.owesOutput() {
			p.endOutput()
		}
	}
	s.procs[p.id] = p
}

// reattach adopts the VM.
func (s *Sandbox) reattach(ctx context.Context, f RestoreFiles) error {
	var vm hypervisor.VM
	if s.state.VM != nil {
		var err error
		vm, err = s.o.Adopt(ctx, *s.state.VM)
		if err != nil && !errors.Is(err, hypervisor.ErrGone) {
			return fmt.Errorf("adopt the VM: %w", err)
		}
	}
	if vm == nil {
		return s.restoreStopped(f)
	}
	m := s.newVM(vm, true)
	known, err := s.reconnect(ctx, m)
	if err == nil {
		err = s.openLogs(f)
	}
	if err != nil {
		for _, p := range s.procs {
			p.closeLog()
		}
		return errors.Join(err, m.detach())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scratch = f.Scratch
	s.booting = &boot{done: make(chan struct{}), cancel: func() {}, vm: m}
	close(s.booting.done)
	memory := s.state.MemoryMiB
	s.slots.Restore(s.state.Images, s.state.Volumes)
	s.adopt(m)
	s.state.MemoryMiB = memory
	for _, p := range s.procs {
		s.resume(p, m, known)
	}
	if err := s.save(); err != nil {
		s.log.Error("state not stored", "error", err)
	}
	if s.state.State == Running {
		s.spawn(func() { s.logIf("detach unused volumes", s.releaseVolumes(s.ctx, m)) })
	}
	if s.state.Starting || !s.created {
		s.spawn(func() {
			s.logIf("kill a half-started VM", s.kill(s.ctx, m, ReasonStartFailed, "the shim died during the start"))
		})
	}
	return nil
}

// reconnect lists the agent's processes. It returns nil if the VM is paused or was never configured.
func (s *Sandbox) reconnect(ctx context.Context, m *liveVM) (map[Process]agentv1.Status, error) {
	if s.state.State != Running || s.state.Starting {
		return nil, nil
	}
	ctx, done := m.call(ctx, s.o.CallTimeout)
	defer done()
	list, err := m.agent.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the agent's processes: %w", err)
	}
	known := map[Process]agentv1.Status{}
	for _, st := range list.Processes {
		known[st.Process] = st
	}
	return known, nil
}

// resume continues with one process; the caller holds mu.
func (s *Sandbox) resume(p *process, m *liveVM, known map[Process]agentv1.Status) {
	p.vm = m
	for _, disk := range p.disks {
		s.slots.Retain(disk)
	}
	st, there := known[p.id]
	switch {
	case p.state == Stopped && p.owesOutput() && (there || known == nil):
		s.follow(p)
	case p.state == Stopped && p.owesOutput():
		p.endOutput()
	case p.state == Stopped:
	case known != nil && !there && p.id.Exec != "" && p.state == Ready:
		// It was not started, and its specification was lost with the shim.
		s.finish(p, neverStarted())
	case known != nil && !there:
		s.finish(p, Exit{Code: 137, Signal: 9, Reason: ReasonError, Message: "the agent does not know it", At: now()})
	case p.state == Ready && !there:
	case p.state == Ready && st.Created:
		p.pid = st.PID // the PID is stored only with the start
	case p.state == Ready: // it started, but that was not stored
		p.pid = st.PID
		s.setRunning(p)
		s.storeContainerOrLog(p.id.Container)
	default:
		if there && p.id.Exec == "" { // the pause or its end may not have been stored
			p.state = Running
			if st.Paused {
				p.state = Paused
			}
		}
		s.startPump(p)
	}
}

// openLogs continues every log. A log without its file waits for ReopenLog.
func (s *Sandbox) openLogs(f RestoreFiles) error {
	for _, p := range s.procs {
		if p.id.Exec != "" || !p.logs() {
			continue
		}
		log := f.Logs[p.id.Container]
		delete(f.Logs, p.id.Container)
		w, err := logs.Open(s.store.container(p.id.Container, "log"), log, s.config.LogBytes)
		if err != nil {
			return fmt.Errorf("log of %s: %w", p.subject(), err)
		}
		p.log = w
	}
	for id, log := range f.Logs { // of unknown containers
		closeQuietly(log)
		delete(f.Logs, id)
	}
	return nil
}

// restoreStopped restores a sandbox without a running VM.
func (s *Sandbox) restoreStopped(f RestoreFiles) error {
	for _, log := range f.Logs {
		closeQuietly(log)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scratch = f.Scratch
	for _, p := range s.procs {
		if p.state == Stopped && p.owesOutput() {
			p.endOutput()
		}
		s.finish(p, Exit{Code: 137, Signal: 9, Reason: ReasonVMKilled, Message: "the VM ended while no shim watched it", At: now()})
	}
	s.state.VM, s.state.MemoryMiB, s.state.Starting = nil, 0, false
	if s.state.State == Stopped {
		close(s.stopped)
		return nil
	}
	s.setStopped(ReasonVMKilled, "the VM ended while no shim watched it")
	return nil
}
