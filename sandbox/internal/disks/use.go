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

// VM is the VM with the slots.
type VM struct {
	VM    hypervisor.VM
	Agent *agentv1.Client
	// Undo bounds the cleanup after a failure, since the caller's context may have ended.
	Undo time.Duration
	// Store stores the result of Stored. It is called before a disk is put into its slot, and after each change.
	Store func() error
}

// MountScratch puts the scratch disk into its slot and mounts it.
func (s *Slots) MountScratch(ctx context.Context, m VM, disk *os.File) error {
	s.mu.Lock()
	writable := s.config.Scratch
	s.mu.Unlock()
	if writable == 0 {
		return fmt.Errorf("scratch disk: %w: the VM has no writable slot", ErrNoSlot)
	}
	if err := m.VM.Attach(ctx, 0, disk, hypervisor.ReadWrite); err != nil {
		return fmt.Errorf("attach the scratch disk: %w", err)
	}
	return m.Agent.Mount(ctx, agentv1.Mount{Name: Scratch, FS: "ext4"})
}

// UseRing attaches the memory for large answers of shared directories, if it is not attached and a slot is free. No
// container uses it: it stays until its slot is needed, after the slots of unused images.
func (s *Slots) UseRing(ctx context.Context, m VM, file *os.File) error {
	err := s.Use(ctx, m, Disk{Name: agentv1.RingDisk, ReadOnly: true}, file)
	if err == nil {
		s.Drop(agentv1.RingDisk)
	}
	return err
}

// Use adds a user to a disk. If the disk is not mounted yet, Use mounts it from its file and stores the change. Drop
// undoes it.
func (s *Slots) Use(ctx context.Context, m VM, d Disk, file *os.File) error {
	for {
		s.mu.Lock()
		shared := s.find(d.Name)
		if shared == nil {
			at, fresh, old, err := s.reserve(d)
			s.mu.Unlock()
			if err != nil {
				return err
			}
			if err := s.fill(ctx, m, at, fresh, old, d, file); err != nil {
				return err
			}
			if err := m.Store(); err != nil {
				s.Drop(d.Name) // it stays mounted for the next container
				return err
			}
			return nil
		}
		if left := shared.left; left != nil {
			s.mu.Unlock()
			select {
			case <-left:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if shared.volume && shared.refs == 0 {
			// An earlier shim may have died while mounting it.
			s.mu.Unlock()
			if err := s.Release(ctx, m); err != nil {
				return err
			}
			continue
		}
		shared.refs++
		s.mu.Unlock()
		select {
		case <-shared.ready:
			if shared.err == nil {
				return nil
			}
			// The other caller's attempt failed, maybe for reasons of its own.
		case <-ctx.Done():
			s.mu.Lock()
			shared.refs--
			s.mu.Unlock()
			return context.Cause(ctx)
		}
	}
}

// fill mounts a disk in the slot that is reserved for it.
func (s *Slots) fill(ctx context.Context, m VM, at int, fresh, old *slot, d Disk, file *os.File) error {
	left, err := m.empty(ctx, at, old)
	if err == nil {
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

// remains returns a slot with a disk that must not be used any more. Release detaches it.
func remains() *slot {
	ready := make(chan struct{})
	close(ready)
	return &slot{volume: true, ready: ready}
}

// empty detaches an unused image. With an error it returns the remaining content of the slot.
func (m VM) empty(ctx context.Context, at int, old *slot) (left *slot, err error) {
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

// mount puts a disk into an empty slot. With an error it returns the remaining content of the slot.
func (m VM) mount(ctx context.Context, at int, d Disk, file *os.File) (left *slot, err error) {
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

// show mounts the slot's disk in the guest.
func (m VM) show(ctx context.Context, at int, d Disk, file *os.File) (err error) {
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

// size returns a volume's size in bytes and, for a writable disk, tells the guest about it. For a read-only disk the
// guest reads the size again.
func (m VM) size(ctx context.Context, at int, d Disk, file *os.File) (int64, error) {
	size, err := file.Seek(0, io.SeekEnd) // works for block devices too
	if err != nil {
		return 0, fmt.Errorf("size: %w", err)
	}
	if !d.ReadOnly {
		err = m.VM.Resize(ctx, at, size)
	}
	return size, err
}
