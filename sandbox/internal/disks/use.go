package disks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/fault"
)

// Machine is the VM that the slots are of.
type Machine struct {
	VM    hypervisor.VM
	Agent *agentv1.Client
	// Undo bounds what is undone after a failure, when the caller's context may have
	// ended.
	Undo time.Duration
	// Store, if not nil, stores what Stored returns before a disk is put into its slot.
	Store func() error
}

// Use mounts a disk for one more container, from its file if it is not mounted yet, which
// it then says: the caller stores it. What it succeeds in is undone by Drop.
func (s *Slots) Use(ctx context.Context, m Machine, d Disk, file *os.File) (mounted bool, err error) {
	for {
		s.mu.Lock()
		shared := s.find(d.Name)
		if shared == nil {
			at, fresh, old, err := s.reserve(d)
			s.mu.Unlock()
			if err != nil {
				return false, err
			}
			return true, s.fill(ctx, m, at, fresh, old, d, file)
		}
		if left := shared.left; left != nil {
			s.mu.Unlock()
			select {
			case <-left:
				continue
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
		if shared.volume && shared.refs == 0 {
			// A former shim may have died in the middle of mounting it.
			s.mu.Unlock()
			if _, err := s.Release(ctx, m); err != nil {
				return false, err
			}
			continue
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

// fill mounts a disk in a slot that was reserved for it.
func (s *Slots) fill(ctx context.Context, m Machine, at int, fresh, old *slot, d Disk, file *os.File) error {
	left, err := m.empty(ctx, at, old)
	if err == nil && m.Store != nil {
		err = m.Store()
	}
	if err == nil {
		left, err = m.mount(ctx, at, d, file)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.used[at] == fresh {
		delete(s.used, at)
		if left != nil {
			s.used[at] = left
		}
	}
	fresh.err = err
	close(fresh.ready)
	return err
}

// remains is a slot with a disk in it that nobody may use any more: Release takes it out.
func remains() *slot {
	ready := make(chan struct{})
	close(ready)
	return &slot{volume: true, ready: ready}
}

// empty takes an image that nobody uses out of its slot. With an error it returns what is left there.
func (m Machine) empty(ctx context.Context, at int, old *slot) (left *slot, err error) {
	if old == nil {
		return nil, nil
	}
	if err := m.Agent.Unmount(ctx, agentv1.Unmount{Name: old.name}); err != nil {
		return old, fmt.Errorf("unmount image %s: %w", old.name, err)
	}
	if err := m.VM.Detach(ctx, at); err != nil {
		return remains(), fmt.Errorf("detach image %s: %w", old.name, err)
	}
	return nil, nil
}

// mount puts a disk into an empty slot. With an error it returns what is left there.
func (m Machine) mount(ctx context.Context, at int, d Disk, file *os.File) (left *slot, err error) {
	if file == nil {
		return nil, fmt.Errorf("mount %s: %w", d, ErrNoDisk)
	}
	err = m.VM.Attach(ctx, at, file, hypervisor.DiskMode(!d.ReadOnly))
	if err != nil {
		err = fmt.Errorf("attach %s: %w", d, err)
	} else if err = m.show(ctx, at, d, file); err == nil {
		return nil, nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.Undo)
	defer cancel()
	if undone := m.VM.Detach(undo, at); undone != nil {
		return remains(), errors.Join(err, undone)
	}
	return nil, err
}

// show has the guest mount what is in a slot.
func (m Machine) show(ctx context.Context, at int, d Disk, file *os.File) (err error) {
	if d.Volume {
		fault.Point("volume.attached")
	} else {
		fault.Point("disk.attached")
	}
	request := agentv1.Mount{Name: d.Name, Slot: at, FS: d.FS, ReadOnly: d.ReadOnly, Volume: d.Volume}
	if d.Volume {
		request.Bytes, err = m.size(ctx, at, d, file)
	}
	if err == nil {
		err = m.Agent.Mount(ctx, request)
	}
	if err != nil {
		return fmt.Errorf("mount %s: %w", d, err)
	}
	if d.Volume {
		fault.Point("volume.mounted")
	} else {
		fault.Point("disk.mounted")
	}
	return nil
}

// size is a volume's, in bytes, of which the guest is told if it has a writable disk. A guest
// that has not heard of it, or whose disk is read-only, looks at the disk anew.
func (m Machine) size(ctx context.Context, at int, d Disk, file *os.File) (int64, error) {
	size, err := file.Seek(0, io.SeekEnd) // of a block device too
	if err != nil {
		return 0, fmt.Errorf("size: %w", err)
	}
	if !d.ReadOnly {
		err = m.VM.Resize(ctx, at, size)
	}
	return size, err
}
