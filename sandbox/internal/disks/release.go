package disks

import (
	"context"
	"errors"
	"fmt"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Release takes the volumes that no container uses out of their slots, and reports whether
// there were any: the caller stores what is left then. One that cannot be unmounted stays, and
// its error is returned; the next Release tries it again.
func (s *Slots) Release(ctx context.Context, m Machine) (left bool, err error) {
	for at, slot := range s.leave() {
		left = true
		err = errors.Join(err, s.release(ctx, m, at, slot))
	}
	return left, err
}

// DropVolumes has no container use a volume any more: none of them is there.
func (s *Slots) DropVolumes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.used {
		if slot.volume {
			slot.refs = 0
		}
	}
}

// leave marks the volumes that no container uses.
func (s *Slots) leave() map[int]*slot {
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

func (s *Slots) release(ctx context.Context, m Machine, at int, leaving *slot) error {
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
		leaving.name = "" // nobody may find it mounted
	}
	return fmt.Errorf("detach volume %s from its slot: %w", name, err)
}
