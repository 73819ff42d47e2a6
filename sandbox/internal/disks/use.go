package disks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Machine is the VM that the slots are of.
type Machine struct {
	VM    hypervisor.VM
	Agent *agentv1.Client
	// Undo bounds what is undone after a failure, when the caller's context may have
	// ended.
	Undo time.Duration
}

// Use mounts an image for one more container, from disk if it is not mounted yet, which
// it then says: the caller stores it. What it succeeds in is undone by Drop.
func (s *Slots) Use(ctx context.Context, m Machine, image string, disk *os.File) (mounted bool, err error) {
	for {
		s.mu.Lock()
		shared := s.find(image)
		if shared == nil {
			at, fresh, old, err := s.reserve(image)
			s.mu.Unlock()
			if err != nil {
				return false, err
			}
			return true, s.fill(ctx, m, at, fresh, old, disk)
		}
		shared.refs++
		s.mu.Unlock()
		select {
		case <-shared.ready:
			if shared.err == nil {
				return false, nil
			}
			// Another's attempt failed; its reasons need not be ours.
		case <-ctx.Done():
			s.mu.Lock()
			shared.refs--
			s.mu.Unlock()
			return false, context.Cause(ctx)
		}
	}
}

// fill mounts an image's disk in a slot that was reserved for it.
func (s *Slots) fill(ctx context.Context, m Machine, at int, fresh, old *slot, disk *os.File) error {
	err := m.empty(ctx, at, old)
	keep := old
	if err == nil {
		keep = nil
		err = m.mount(ctx, at, fresh.image, disk)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.used[at] == fresh {
		delete(s.used, at)
		if keep != nil {
			s.used[at] = keep
		}
	}
	fresh.err = err
	close(fresh.ready)
	return err
}

// empty takes an image that nobody uses out of its slot.
func (m Machine) empty(ctx context.Context, at int, old *slot) error {
	if old == nil {
		return nil
	}
	if err := m.Agent.Unmount(ctx, agentv1.Unmount{Name: old.image}); err != nil {
		return fmt.Errorf("unmount image %s: %w", old.image, err)
	}
	return m.VM.Detach(ctx, at)
}

func (m Machine) mount(ctx context.Context, at int, image string, disk *os.File) error {
	if disk == nil {
		return fmt.Errorf("mount image %s: %w", image, ErrNoDisk)
	}
	if err := m.VM.Attach(ctx, at, disk, hypervisor.ReadOnly); err != nil {
		return fmt.Errorf("attach image %s: %w", image, err)
	}
	err := m.Agent.Mount(ctx, agentv1.Mount{Name: image, Slot: at, FS: "erofs", ReadOnly: true})
	if err == nil {
		return nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.Undo)
	defer cancel()
	return errors.Join(fmt.Errorf("mount image %s: %w", image, err), m.VM.Detach(undo, at))
}
