// Package disks keeps account of a VM's disk slots: the first is the scratch disk's if
// the VM has a writable one, the read-only ones hold images.
package disks

import (
	"errors"
	"fmt"
	"sync"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

var (
	// ErrNoSlot is returned when every slot is in use.
	ErrNoSlot = errors.New("no free disk slot")
	// ErrNoDisk is returned for an image that is not mounted yet and comes without a disk.
	ErrNoDisk = errors.New("no disk was sent")
)

// Slots are those of one VM. An image that no container uses stays where it is until
// its slot is needed: a restarted container finds it. The zero value has none; its
// methods may be called at once.
type Slots struct {
	mu      sync.Mutex
	machine hypervisor.Machine
	used    map[int]*slot
}

type slot struct {
	image string
	refs  int
	ready chan struct{} // closed when it is mounted, or err set
	err   error
}

// Init empties all slots, which are those of m from now on.
func (s *Slots) Init(m hypervisor.Machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine, s.used = m, map[int]*slot{}
}

// Reset empties all slots: the VM is gone.
func (s *Slots) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = map[int]*slot{}
}

// Scratch is the scratch disk's slot.
func (s *Slots) Scratch() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine.Scratch == 0 {
		return 0, fmt.Errorf("scratch disk: %w: the machine has none that is writable", ErrNoSlot)
	}
	return 0, nil
}

// Images are the mounted ones, by their slots, as they are stored.
func (s *Slots) Images() map[int]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	images := map[int]string{}
	for i, slot := range s.used {
		if slot.mounted() {
			images[i] = slot.image
		}
	}
	return images
}

// Restore notes the mounted images that a former shim has left, which no container
// uses yet.
func (s *Slots) Restore(images map[int]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, image := range images {
		ready := make(chan struct{})
		close(ready)
		s.used[i] = &slot{image: image, ready: ready}
	}
}

// Retain notes one more container that uses an image, if it is mounted.
func (s *Slots) Retain(image string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.find(image); slot != nil {
		slot.refs++
	}
}

// Drop is the inverse of Use and Retain.
func (s *Slots) Drop(image string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.find(image); slot != nil && slot.refs > 0 {
		slot.refs--
	}
}

// Users is how many containers use an image; ok is false for one that is in no slot.
func (s *Slots) Users(image string) (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.find(image); slot != nil {
		return slot.refs, true
	}
	return 0, false
}

func (s *slot) mounted() bool {
	select {
	case <-s.ready:
		return s.err == nil
	default:
		return false
	}
}

// find returns the slot of an image; the caller holds mu.
func (s *Slots) find(image string) *slot {
	for _, slot := range s.used {
		if slot.image == image {
			return slot
		}
	}
	return nil
}

// reserve puts a new slot for image where nothing is, or in place of an image
// that nobody uses, which it returns. The caller holds mu.
func (s *Slots) reserve(image string) (at int, fresh, old *slot, err error) {
	at = -1
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
	old, fresh = s.used[at], &slot{image: image, refs: 1, ready: make(chan struct{})}
	s.used[at] = fresh
	return at, fresh, old, nil
}
