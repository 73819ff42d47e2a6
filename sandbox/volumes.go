package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/disks"
)

// slotsOf returns the VM in the form that its slots need. It stores their content while the VM is the sandbox's.
func (s *Sandbox) slotsOf(m *liveVM) disks.VM {
	return disks.VM{VM: m.VM, Agent: m.Agent, Undo: s.o.CallTimeout, Store: func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.vm != m {
			return nil // the end of the VM has emptied its slots
		}
		return s.save()
	}}
}

// GrowVolume grows a writable volume of the VM, and the file system on it, to a size in bytes. A regular file is
// extended to that size.
func (s *Sandbox) GrowVolume(ctx context.Context, name string, bytes int64) error {
	m, err := s.running("grow a volume of", Running)
	if err != nil {
		return err
	}
	at, ok := s.slots.Writable(name)
	if !ok {
		return fmt.Errorf("grow volume %.64q of %s: %w: no writable volume has that name", name, s.subject(), errdefs.ErrInvalidArgument)
	}
	ctx, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	if err := m.VM.Resize(ctx, at, bytes); err != nil {
		return fmt.Errorf("grow volume %s of %s: %w", name, s.subject(), m.Fault(err))
	}
	if err := m.Agent.Grow(ctx, agentv1.Grow{Name: name, Bytes: bytes}); err != nil {
		return fmt.Errorf("grow volume %s of %s: %w", name, s.subject(), m.Fault(err))
	}
	return nil
}

// ReleaseVolumes detaches volumes that no container uses. These are volumes that could not be unmounted when their last
// container was deleted.
func (s *Sandbox) ReleaseVolumes(ctx context.Context) error {
	m, err := s.running("release the volumes of", Running)
	if err != nil {
		return err
	}
	if err := s.releaseVolumes(ctx, m); err != nil {
		return fmt.Errorf("release the volumes of %s: %w", s.subject(), err)
	}
	return nil
}

// releaseVolumes detaches the volumes that no container uses.
func (s *Sandbox) releaseVolumes(ctx context.Context, m *liveVM) error {
	if m.Context().Err() != nil {
		return nil // the VM is gone, so its slots are free
	}
	call, done := m.Call(ctx, s.o.CallTimeout)
	defer done()
	return s.slots.Release(call, s.slotsOf(m))
}

// endVolumes detaches all volumes before the VM is killed, after deleting the containers that use them. A file system
// is clean only after it was unmounted.
func (s *Sandbox) endVolumes(ctx context.Context, m *liveVM) error {
	if _, volumes := s.slots.Stored(); len(volumes) == 0 {
		return nil
	}
	for _, id := range s.ids(func(id Process) bool { return id.Exec == "" }) {
		if err := deleteInGuest(ctx, m, id); err != nil {
			return fmt.Errorf("delete container %s: %w", id.Container, err)
		}
	}
	s.slots.DropVolumes()
	return s.slots.Release(ctx, s.slotsOf(m))
}
