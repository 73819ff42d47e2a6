package disks

import (
	"context"
	"errors"
	"fmt"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Release detaches the volumes that no container uses, and stores the change. A volume that cannot be unmounted stays,
// and its error is returned. The next Release tries again.
func (s *Slots) Release(ctx context.Context, m VM) (err error) {
	leaving := s.markUnused()
	for at, slot := range leaving {
		err = errors.Join(err, s.release(ctx, m, at, slot))
	}
	if len(leaving) > 0 {
		err = errors.Join(err, m.Store())
	}
	return err
}

// DropVolumes drops all containers' uses of volumes, after the containers were deleted.
func (s *Slots) DropVolumes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.used {
		if slot.volume {
			slot.refs = 0
		}
	}
}

// markUnused marks the volumes that no container uses, and returns them by their slots.
func (s *Slots) markUnused() map[int]*slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	leaving := map[int]*slot{}
	for at, slot := range s.used {
		if slot.volume && slot.refs == 0 && slot.left == nil && slot.mounted() {
			slot.left = make(chan struct{})
			leaving[at] = slot
		}
	}
	return leaving
}

func (s *Slots) release(ctx context.Context, m VM, at int, leaving *slot) error {
	name := leaving.name
	err := m.Agent.Unmount(ctx, agentv1.Unmount{Name: name})
	unmounted := err == nil
	if unmounted {
		err = m.VM.Detach(ctx, at)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(leaving.left)
	leaving.left = nil
	switch {
	case s.used[at] != leaving: // the VM is gone
		return nil
	case err == nil:
		delete(s.used, at)
		return nil
	case unmounted:
		leaving.name = "" // no container may find it mounted
	}
	return fmt.Errorf("detach volume %s from its slot: %w", name, err)
}
