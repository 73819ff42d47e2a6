package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// GrowVolume grows a writable volume of the VM, and the file system on it, to a size in bytes. A regular file is
// extended to that size.
func (s *Sandbox) GrowVolume(ctx context.Context, name string, bytes int64) error {
	m, err := s.running("grow a volume of", Running)
	if err != nil {
		return err
	}
	at, ok := s.devices.Slots.Writable(name)
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
	if err := s.devices.Release(ctx, m); err != nil {
		return fmt.Errorf("release the volumes of %s: %w", s.subject(), err)
	}
	return nil
}

// endVolumes detaches all volumes before the VM is killed, after deleting the containers that use them. A file system
// is clean only after it was unmounted.
func (s *Sandbox) endVolumes(ctx context.Context, m *liveVM) error {
	if _, volumes := s.devices.Slots.Stored(); len(volumes) == 0 {
		return nil
	}
	for _, id := range s.ids(func(id Process) bool { return id.Exec == "" }) {
		if err := deleteInGuest(ctx, m, id); err != nil {
			return fmt.Errorf("delete container %s: %w", id.Container, err)
		}
	}
	s.devices.Slots.DropVolumes()
	return s.devices.Slots.Release(ctx, s.devices.Disks(m))
}
