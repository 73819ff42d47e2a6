// Package disks mounts the disks that the host attaches to the VM's slots.
package disks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/blockdev"
	"github.com/bulkhead-project/bulkhead/agent/internal/copyup"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// dir has the mount points of disks.
const dir = "/run/bulkhead/disks"

// Disks are the disks that the host has asked to mount. The zero value has none. It is safe for concurrent use.
type Disks struct {
	mu  sync.Mutex // guards the following; never held while waiting
	all map[string]*Disk

	slots   sync.Mutex        // guards the following
	devices map[string]string // of the slots, by their disks' serials
	resized map[int]bool      // slots with a disk of another size than the template's
}

// Disk is a disk that is mounted, or being mounted (not ready).
type Disk struct {
	agentv1.Mount        // the host's request
	At            string // mount point
	Device        string // set when it is ready

	ready bool
	left  bool // unmounted, but the device was busy: Unmount must be called again
	users int

	filling sync.Mutex // held while the disk's files are prepared; guards the following
	owned   int        // the group of the volume's files; 0 is none
}

// serial is the disk serial that the host sets for a slot.
func serial(slot int) string { return "slot" + strconv.Itoa(slot) }

// Mount mounts a disk, unless it is mounted already. Users get it once prepare, if set, has prepared its files.
func (s *Disks) Mount(ctx context.Context, m agentv1.Mount, prepare func(at string) error) error {
	d := &Disk{Mount: m, At: filepath.Join(dir, serial(m.Slot))}
	switch {
	case m.Name == "" || m.Slot < 0:
		return fmt.Errorf("disk %.64q in slot %d: %w", m.Name, m.Slot, errdefs.ErrInvalidArgument)
	case m.FS != "erofs" && m.FS != "ext4" && (m.FS != "" || !m.Volume && m.Name != agentv1.RingDisk):
		return fmt.Errorf("file system %.32q: %w", m.FS, errdefs.ErrNotImplemented)
	}
	s.mu.Lock()
	old := s.all[m.Name]
	if old == nil {
		if s.all == nil {
			s.all = map[string]*Disk{}
		}
		s.all[m.Name] = d
	}
	s.mu.Unlock()
	switch {
	case old == nil:
	case old.Mount != m:
		return fmt.Errorf("disk %.64q is mounted from slot %d: %w", m.Name, old.Slot, errdefs.ErrAlreadyExists)
	case !old.ready:
		return fmt.Errorf("disk %.64q is being mounted: %w", m.Name, agentv1.ErrBusy)
	default:
		return nil
	}
	device, err := s.mount(m, d.At)
	if err == nil && prepare != nil {
		if err = prepare(d.At); err != nil {
			err = errors.Join(err, blockdev.Unmount(ctx, d.At))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.all, m.Name)
		return fmt.Errorf("mount disk %.64q of slot %d: %w", m.Name, m.Slot, err)
	}
	d.ready, d.Device = true, device
	return nil
}

// mount mounts the disk of a slot, unless it has no file system, and returns the device.
func (s *Disks) mount(m agentv1.Mount, at string) (device string, err error) {
	if device, err = s.find(m.Slot); err != nil {
		return "", err
	}
	if device, err = s.fit(device, m); err != nil {
		return "", err
	}
	// The kernel may have cached blocks of the slot's previous disk.
	if err := blockdev.Forget(device); err != nil {
		return "", err
	}
	if m.FS == "" {
		return device, nil
	}
	if err := os.MkdirAll(at, 0o711); err != nil {
		return "", err
	}
	// Set-user-id programs and devices of an image work as in any container; the specification decides which ones a
	// container may use.
	var flags uintptr
	data := ""
	switch {
	case m.ReadOnly || m.FS == "erofs":
		flags |= unix.MS_RDONLY
	case m.Volume:
		data = "noinit_itable" // the creator of the file system has cleared it, or wants it sparse
	default:
		flags |= unix.MS_NOATIME
		data = "noinit_itable,prjquota" // the disk is a file of zeros
	}
	if err := unix.Mount(device, at, m.FS, flags, data); err != nil {
		if m.Volume && m.ReadOnly && errors.Is(err, unix.EROFS) {
			err = fmt.Errorf("it was not unmounted cleanly: mount it writable once: %w", err)
		}
		return "", fmt.Errorf("%s has no %s that can be mounted: %w", device, m.FS, err)
	}
	return device, nil
}

// fit makes the kernel read a volume's size, or the slot's standard size after a volume, and returns the device's new
// name. Disks of images and scratch disks always have the standard size.
func (s *Disks) fit(device string, m agentv1.Mount) (string, error) {
	s.slots.Lock()
	defer s.slots.Unlock()
	want := m.Bytes
	if !m.Volume {
		want = slot.Size
	}
	if !m.Volume && !s.resized[m.Slot] {
		return device, nil
	}
	if s.resized == nil {
		s.resized = map[int]bool{}
	}
	s.resized[m.Slot] = want != slot.Size
	now, err := blockdev.Fit(device, want, readAhead)
	s.devices[serial(m.Slot)] = now
	return now, err
}

// readAhead is the size of a disk request, in KiB. Each request costs a millisecond under emulation, and the host has
// the data in memory.
const readAhead = "512"

// find returns the device of a slot. Slots never change, and reading a serial is a request to the disk, so it reads
// all serials once.
func (s *Disks) find(number int) (string, error) {
	s.slots.Lock()
	defer s.slots.Unlock()
	if device := s.devices[serial(number)]; device != "" {
		return device, nil
	}
	files, err := filepath.Glob("/sys/block/vd*/serial")
	if err != nil {
		return "", err
	}
	s.devices = map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		device := filepath.Join("/dev", filepath.Base(filepath.Dir(file)))
		if err := blockdev.ReadAhead(device, readAhead); err != nil {
			return "", err
		}
		s.devices[strings.Trim(string(data), "\x00\n")] = device
	}
	if device := s.devices[serial(number)]; device != "" {
		return device, nil
	}
	return "", fmt.Errorf("the slot has no device: %w", errdefs.ErrNotFound)
}

// Unmount unmounts a disk without users. A disk that is not mounted is no error.
func (s *Disks) Unmount(ctx context.Context, name string) error {
	s.mu.Lock()
	d := s.all[name]
	if d == nil {
		s.mu.Unlock()
		return nil
	}
	if !d.ready && !d.left || d.users > 0 {
		s.mu.Unlock()
		return fmt.Errorf("disk %.64q is in use: %w", name, agentv1.ErrBusy)
	}
	left := d.left
	d.ready, d.left = false, false
	s.mu.Unlock()
	left, err := d.unmount(ctx, left)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		d.ready, d.left = !left, left
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("%w: %w", agentv1.ErrBusy, err)
		}
		return fmt.Errorf("unmount disk %.64q: %w", name, err)
	}
	delete(s.all, name)
	return nil
}

// Grow grows a volume's file system to its disk's size. A device without a file system is done once the kernel knows
// the size.
func (s *Disks) Grow(ctx context.Context, g agentv1.Grow) error {
	d, free, err := s.Use(g.Name)
	if err != nil {
		return err
	}
	defer free()
	if !d.Volume || d.ReadOnly {
		return fmt.Errorf("disk %.64q must be a writable volume: %w", g.Name, errdefs.ErrInvalidArgument)
	}
	if err := blockdev.Grown(ctx, d.Device, g.Bytes); err != nil || d.FS == "" {
		return err
	}
	return blockdev.Grow(d.At, d.Device)
}

// unmount unmounts a disk, unless an earlier call did. Afterwards a volume's device is free, and all writes are on it.
func (d *Disk) unmount(ctx context.Context, before bool) (left bool, err error) {
	if d.FS != "" && !before {
		if err := blockdev.Unmount(ctx, d.At); err != nil && !errors.Is(err, unix.EINVAL) {
			return false, err
		}
		if !d.Volume {
			return true, nil
		}
	}
	return d.FS != "", blockdev.Free(ctx, d.Device, d.ReadOnly)
}

// Find returns a disk that is mounted, or nil. The disk can be unmounted meanwhile.
func (s *Disks) Find(name string) *Disk {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.all[name]; d != nil && d.ready {
		return d
	}
	return nil
}

// Use counts one more user of a disk; release counts it out. The error matches errdefs.ErrNotFound if the disk is not
// mounted.
func (s *Disks) Use(name string) (d *Disk, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d = s.all[name]
	if d == nil || !d.ready {
		return nil, nil, fmt.Errorf("disk %.64q is not mounted: %w", name, errdefs.ErrNotFound)
	}
	d.users++
	return d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		d.users--
	}, nil
}

// treeWait bounds operations on all files of a volume before a container gets it. It is shorter than the host's wait
// for a container.
const treeWait = 25 * time.Second

// Prepare prepares a writable volume for a container's mount. If the mount says so, an empty volume first gets the files
// that the container's root has at that place. The first container that mounts it changes the group of its files.
func (d *Disk) Prepare(ctx context.Context, root string, v containerv1.Mount) error {
	if d.ReadOnly {
		return nil
	}
	d.filling.Lock()
	defer d.filling.Unlock()
	ctx, cancel := context.WithTimeout(ctx, treeWait)
	defer cancel()
	if v.Copy {
		if err := copyup.Fill(ctx, root, v.Destination, d.At); err != nil {
			return fmt.Errorf("copy the image's files at %.200q to an empty volume (nocopy leaves it empty): %w", v.Destination, err)
		}
	}
	if v.Group == 0 || d.owned != 0 {
		return nil
	}
	if err := guesttree.Chown(ctx, d.At, v.Group); err != nil && !errors.Is(err, guesttree.ErrKept) { // a kubelet's pod continues then too
		return fmt.Errorf("change the group of disk %.64q to %d: %w", d.Name, v.Group, err)
	}
	d.owned = v.Group
	return nil
}
