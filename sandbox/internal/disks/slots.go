// Package disks manages a VM's disk slots. The first slot is the scratch disk's if the VM has a writable one. The other
// writable slots hold volumes; the read-only slots hold images and volumes.
package disks

import (
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

var (
	// ErrNoSlot is returned when every slot is in use.
	ErrNoSlot = errdefs.ErrResourceExhausted.WithMessage("no free disk slot")
	// ErrNoDisk is returned for a disk that is not mounted yet and comes without its file.
	ErrNoDisk = errdefs.ErrInvalidArgument.WithMessage("no disk was sent")
)

// Scratch is the name of the scratch disk in the VM.
const Scratch = "scratch"

// Disk is the content of a slot: an image or a volume.
type Disk struct {
	// Name is the disk's name in the VM.
	Name string
	// FS is the disk's file system. An empty FS makes it a device for containers.
	FS       string
	ReadOnly bool
	// Volume marks a volume. A volume leaves its slot with the last container that uses it, because another pod may
	// wait for it.
	Volume bool
}

// Image returns the disk of an image.
func Image(id string) Disk { return Disk{Name: id, FS: "erofs", ReadOnly: true} }

// Slots are the disk slots of one VM. An unused image stays until its slot is needed, so that a restarted container
// finds it. The zero value has no slots. Methods are safe for concurrent use.
type Slots struct {
	mu     sync.Mutex
	config hypervisor.VMConfig
	used   map[int]*slot
}

type slot struct {
	name   string // empty for a disk that is unmounted but still in its slot
	volume bool
	refs   int
	ready  chan struct{} // closed when the disk is mounted or err is set
	err    error
	left   chan struct{} // of a volume that is being detached: closed after that
}

// Init sets the VM's slots, all of them empty.
func (s *Slots) Init(m hypervisor.VMConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config, s.used = m, map[int]*slot{}
}

// Reset empties all slots after the VM's end.
func (s *Slots) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = map[int]*slot{}
}

// Stored returns the names of the disks by their slots, for the store: first the mounted images, then the volumes and
// the images that are not mounted yet. The slots of the latter may already be filled.
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

// Restore records the disks that an earlier shim has left. No container uses them yet. An image that may not be mounted
// leaves its slot like a volume.
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

// Retain records one more container that uses a disk, if it is mounted.
func (s *Slots) Retain(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.find(name); slot != nil {
		slot.refs++
	}
}

// Drop is the inverse of Use and Retain. Release detaches unused volumes.
func (s *Slots) Drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.find(name); slot != nil && slot.refs > 0 {
		slot.refs--
	}
}

// Users returns the number of containers that use a disk; ok is false if the disk is in no slot.
func (s *Slots) Users(name string) (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.find(name); slot != nil {
		return slot.refs, true
	}
	return 0, false
}

// Writable returns the slot of a mounted writable volume; ok is false if there is none of that name.
func (s *Slots) Writable(name string) (at int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, slot := range s.used {
		if slot.name == name && slot.volume && slot.mounted() && i < s.config.Scratch {
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

// reserve assigns a free slot to a disk, or the slot of an unused image, which it returns as old. The caller holds mu.
func (s *Slots) reserve(d Disk) (at int, fresh, old *slot, err error) {
	first, end, kind := s.config.Scratch, s.config.Slots, "read-only"
	if !d.ReadOnly {
		first, end, kind = 1, s.config.Scratch, "writable"
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

// String returns the disk's name for errors.
func (d Disk) String() string {
	if d.Volume {
		return "volume " + d.Name
	}
	return "image " + d.Name
}
