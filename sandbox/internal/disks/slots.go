// Package disks keeps account of a VM's disk slots: the first is the scratch disk's if
// the VM has a writable one. The other writable ones hold volumes, the read-only ones images
// and volumes.
package disks

import (
	"errors"
	"fmt"
	"sync"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

var (
	// ErrNoSlot is returned when every slot is in use.
	ErrNoSlot = errors.New("no free disk slot")
	// ErrNoDisk is returned for a disk that is not mounted yet and comes without its file.
	ErrNoDisk = errors.New("no disk was sent")
)

// Disk is what a slot can hold: an image, or a volume.
type Disk struct {
	// Name is the disk's own in the VM.
	Name string
	// FS is the file system on it; with none it is a device for containers.
	FS       string
	ReadOnly bool
	// Volume says that it is no image: it leaves its slot with the last container that
	// uses it, for somebody else may wait for it.
	Volume bool
}

// Image is the disk of an image.
func Image(id string) Disk { return Disk{Name: id, FS: "erofs", ReadOnly: true} }

// Ring is the disk for large answers of shared directories: no container's. It goes when its slot is needed, after the
// images that no container uses.
func Ring() Disk { return Disk{Name: agentv1.RingDisk, ReadOnly: true} }

// Slots are those of one VM. An image that no container uses stays where it is until
// its slot is needed: a restarted container finds it. The zero value has none; its
// methods may be called at once.
type Slots struct {
	mu      sync.Mutex
	machine hypervisor.VMConfig
	used    map[int]*slot
}

type slot struct {
	name   string // empty for one that is unmounted, and not out of its slot yet
	volume bool
	refs   int
	ready  chan struct{} // closed when it is mounted, or err set
	err    error
	left   chan struct{} // of a volume that is being taken out: closed after that
}

// Init empties all slots, which are those of m from now on.
func (s *Slots) Init(m hypervisor.VMConfig) {
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
		return 0, fmt.Errorf("scratch disk: %w: the VM has no writable slot", ErrNoSlot)
	}
	return 0, nil
}

// Stored are the names of the disks by their slots, as they are stored: the images that are
// mounted, and the volumes, and images that are not mounted yet, whose slots may be filled.
func (s *Slots) Stored() (images, volumes map[int]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	images, volumes = map[int]string{}, map[int]string{}
	for i, slot := range s.used {
		if slot.volume || !slot.mounted() {
			volumes[i] = slot.name
		} else {
			images[i] = slot.name
		}
	}
	return images, volumes
}

// Restore notes the disks that a former shim has left, which no container uses yet. An image that it may
// not have mounted leaves its slot as a volume does.
func (s *Slots) Restore(images, volumes map[int]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := make(chan struct{})
	close(ready)
	for i, name := range images {
		s.used[i] = &slot{name: name, ready: ready}
	}
	for i, name := range volumes {
		s.used[i] = &slot{name: name, volume: true, ready: ready}
	}
}

// Retain notes one more container that uses a disk, if it is mounted.
func (s *Slots) Retain(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.find(name); slot != nil {
		slot.refs++
	}
}

// Drop is the inverse of Use and Retain. A volume that nobody uses is taken out by Release.
func (s *Slots) Drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.find(name); slot != nil && slot.refs > 0 {
		slot.refs--
	}
}

// Users is how many containers use a disk; ok is false for one that is in no slot.
func (s *Slots) Users(name string) (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.find(name); slot != nil {
		return slot.refs, true
	}
	return 0, false
}

// Writable is the slot of a volume that is mounted there; ok is false for one that is not.
func (s *Slots) Writable(name string) (at int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, slot := range s.used {
		if slot.name == name && slot.volume && slot.mounted() && i < s.machine.Scratch {
			return i, true
		}
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

// find returns the slot of a disk; the caller holds mu.
func (s *Slots) find(name string) *slot {
	for _, slot := range s.used {
		if slot.name == name {
			return slot
		}
	}
	return nil
}

// reserve puts a new slot for a disk where nothing is, or in place of an image that nobody
// uses, which it returns. The caller holds mu.
func (s *Slots) reserve(d Disk) (at int, fresh, old *slot, err error) {
	first, end, kind := s.machine.Scratch, s.machine.Slots, "read-only"
	if !d.ReadOnly {
		first, end, kind = 1, s.machine.Scratch, "writable"
	}
	at = -1
	for i := first; i < end; i++ {
		old := s.used[i]
		if old == nil {
			at = i
			break
		}
		if old.refs == 0 && !old.volume && old.mounted() && (at < 0 || s.used[at].name == agentv1.RingDisk) {
			at = i
		}
	}
	if at < 0 {
		return 0, nil, nil, fmt.Errorf("%s: %w: all %d %s slots of the pod are in use", d, ErrNoSlot, max(end-first, 0), kind)
	}
	old, fresh = s.used[at], &slot{name: d.Name, volume: d.Volume, refs: 1, ready: make(chan struct{})}
	s.used[at] = fresh
	return at, fresh, old, nil
}

// String names the disk in errors.
func (d Disk) String() string {
	if d.Volume {
		return "volume " + d.Name
	}
	return "image " + d.Name
}
