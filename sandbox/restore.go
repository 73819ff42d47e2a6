package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/records"
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
		s.work.Cancel()
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
	st, err := s.store.ReadSandbox()
	if err != nil {
		return err
	}
	if st.Owner != self && st.Owner.Alive() {
		return fmt.Errorf("%w: another process has the sandbox: %d", errdefs.ErrConflict, st.Owner.PID)
	}
	st.Owner = self
	s.state = st
	var c Config
	path := s.store.Path("config.json")
	err = atomicfile.ReadJSON(path, &c)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the sandbox has no pod yet
	}
	if err == nil && c.Version != ConfigVersion {
		err = records.Corrupt(path, "version %d is not %d", c.Version, ConfigVersion)
	}
	if err != nil {
		return err
	}
	s.config, s.created = c, true
	s.devices.Slots.Init(c.VM)
	ids, err := s.store.Containers()
	if err != nil {
		return err
	}
	for _, id := range ids {
		c, st, err := s.store.ReadContainer(id)
		if err != nil {
			return err
		}
		s.processes.load(c, st)
	}
	return nil
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
		err = s.openLogs(f.Logs, s.config.LogBytes)
	}
	if err != nil {
		s.closeLogs()
		return errors.Join(err, m.Detach())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices.TakeFiles(f.Scratch, nil)
	s.booting = &boot{done: make(chan struct{}), cancel: func() {}, vm: m}
	close(s.booting.done)
	s.adopt(m)
	s.devices.Restore(m, s.state.Record)
	for _, disk := range s.resume(m, known) {
		s.devices.Slots.Retain(disk)
	}
	if err := s.save(); err != nil {
		s.log.Error("state not stored", "error", err)
	}
	if s.state.State == Running {
		s.work.Go(func() { s.logIf("detach unused volumes", s.devices.Release(s.work.Context(), m)) })
	}
	if s.state.Starting || !s.created {
		s.work.Go(func() {
			s.logIf("kill a half-started VM", s.kill(s.work.Context(), m, ReasonStartFailed, "the shim died during the start"))
		})
	}
	return nil
}

// reconnect lists the agent's processes. It returns nil if the VM is paused or was never configured.
func (s *Sandbox) reconnect(ctx context.Context, m *liveVM) (map[Process]agentv1.Status, error) {
	if s.state.State != Running || s.state.Starting {
		return nil, nil
	}
	ctx, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	list, err := m.Agent.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the agent's processes: %w", err)
	}
	known := map[Process]agentv1.Status{}
	for _, st := range list.Processes {
		known[st.Process] = st
	}
	return known, nil
}

// restoreStopped restores a sandbox without a running VM.
func (s *Sandbox) restoreStopped(f RestoreFiles) error {
	for _, log := range f.Logs {
		closeQuietly(log)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices.TakeFiles(f.Scratch, nil)
	s.endLoaded(Exit{Code: 137, Signal: 9, Reason: ReasonVMKilled, Message: "the VM ended while no shim watched it", At: now()})
	s.state.VM, s.state.Starting = nil, false
	if s.state.State == Stopped {
		close(s.stopped)
		return nil
	}
	s.setStopped(ReasonVMKilled, "the VM ended while no shim watched it")
	return nil
}
