package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// slots are the machine's disk slots: the first is the scratch disk's if the
// machine has a writable one, the read-only ones hold images. An image that no container uses
// stays where it is until its slot is needed: a restarted container finds it.
// All is guarded by the sandbox's mutex.
type slots struct {
	machine hypervisor.Machine
	used    map[int]*slot
}

type slot struct {
	image string
	refs  int
	ready chan struct{} // closed when it is mounted, or err set
	err   error
}

func (s *slots) init(m hypervisor.Machine) { s.machine, s.used = m, map[int]*slot{} }

func (s *slots) reset() { s.used = map[int]*slot{} }

// scratch is the scratch disk's slot.
func (s *slots) scratch() (int, error) {
	if s.machine.Scratch == 0 {
		return 0, fmt.Errorf("scratch disk: %w: the machine has none that is writable", ErrNoSlot)
	}
	return 0, nil
}

// images are the mounted ones, as they are stored.
func (s *slots) images() map[int]string {
	images := map[int]string{}
	for i, slot := range s.used {
		if slot.mounted() {
			images[i] = slot.image
		}
	}
	return images
}

func (s *slot) mounted() bool {
	select {
	case <-s.ready:
		return s.err == nil
	default:
		return false
	}
}

// find returns the slot of an image.
func (s *slots) find(image string) *slot {
	for _, slot := range s.used {
		if slot.image == image {
			return slot
		}
	}
	return nil
}

// reserve puts a new slot for image where nothing is, or in place of an image
// that nobody uses, which it returns.
func (s *slots) reserve(image string) (int, *slot, *slot, error) {
	at := -1
	for i := s.machine.Scratch; i < s.machine.Slots; i++ {
		old := s.used[i]
		if old == nil {
			at = i
			break
		}
		if at < 0 && old.refs == 0 && old.mounted() {
			at = i
		}
	}
	if at < 0 {
		return 0, nil, nil, fmt.Errorf("image %s: %w: all %d are in use", image, ErrNoSlot, s.machine.Slots-s.machine.Scratch)
	}
	old, fresh := s.used[at], &slot{image: image, refs: 1, ready: make(chan struct{})}
	s.used[at] = fresh
	return at, fresh, old, nil
}

// restore puts a mounted image where a former shim has left it.
func (s *slots) restore(images map[int]string) {
	for i, image := range images {
		ready := make(chan struct{})
		close(ready)
		s.used[i] = &slot{image: image, ready: ready}
	}
}

// useImage mounts an image for one more container, from disk if it is not
// mounted yet. What it succeeds in is undone by dropImage.
func (s *Sandbox) useImage(ctx context.Context, m *machine, image string, disk *os.File) error {
	for {
		s.mu.Lock()
		shared := s.slots.find(image)
		if shared == nil {
			at, fresh, old, err := s.slots.reserve(image)
			s.mu.Unlock()
			if err != nil {
				return err
			}
			return s.fill(ctx, m, at, fresh, old, disk)
		}
		shared.refs++
		s.mu.Unlock()
		select {
		case <-shared.ready:
			if shared.err == nil {
				return nil
			}
			// Another's attempt failed; its reasons need not be ours.
		case <-ctx.Done():
			s.mu.Lock()
			shared.refs--
			s.mu.Unlock()
			return context.Cause(ctx)
		}
	}
}

// fill mounts an image's disk in a slot that was reserved for it.
func (s *Sandbox) fill(ctx context.Context, m *machine, at int, fresh, old *slot, disk *os.File) error {
	err := s.empty(ctx, m, at, old)
	keep := old
	if err == nil {
		keep = nil
		err = s.mountImage(ctx, m, at, fresh.image, disk)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.slots.used[at] == fresh {
		delete(s.slots.used, at)
		if keep != nil {
			s.slots.used[at] = keep
		}
	}
	fresh.err = err
	close(fresh.ready)
	if err == nil && s.machine == m {
		if err = s.save(); err != nil {
			fresh.refs-- // it stays mounted, for who comes next
		}
	}
	return err
}

// empty takes an image that nobody uses out of its slot.
func (s *Sandbox) empty(ctx context.Context, m *machine, at int, old *slot) error {
	if old == nil {
		return nil
	}
	if err := m.agent.Unmount(ctx, agentv1.Unmount{Name: old.image}); err != nil {
		return fmt.Errorf("unmount image %s: %w", old.image, err)
	}
	return m.vm.Detach(ctx, at)
}

func (s *Sandbox) mountImage(ctx context.Context, m *machine, at int, image string, disk *os.File) error {
	if disk == nil {
		return fmt.Errorf("mount image %s: %w: no disk was sent", image, ErrInvalid)
	}
	if err := m.vm.Attach(ctx, at, disk, hypervisor.ReadOnly); err != nil {
		return fmt.Errorf("attach image %s: %w", image, err)
	}
	err := m.agent.Mount(ctx, agentv1.Mount{Name: image, Slot: at, FS: "erofs", ReadOnly: true})
	if err == nil {
		return nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.CallTimeout)
	defer cancel()
	return errors.Join(fmt.Errorf("mount image %s: %w", image, err), m.vm.Detach(undo, at))
}

// dropImage is the inverse of useImage; the caller holds mu.
func (s *Sandbox) dropImage(image string) {
	if slot := s.slots.find(image); slot != nil && slot.refs > 0 {
		slot.refs--
	}
}
