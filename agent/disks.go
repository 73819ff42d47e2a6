package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/blockdev"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/slot"
)

// scratch is the name of the disk with the containers' writable layers.
const scratch = "scratch"

// disk is a disk that is mounted, or being mounted (not ready).
type disk struct {
	request agentv1.Mount
	at      string
	device  string // set when it is ready
	ready   bool
	left    bool // unmounted, but the device was busy: Unmount must be called again
	users   int  // containers with it as root or volume
	owned   int  // the group of the volume's files; 0 is none
}

// serial is the disk serial that the host sets for a slot.
func serial(slot int) string { return "slot" + strconv.Itoa(slot) }

func (a *Agent) mount(ctx context.Context, m agentv1.Mount) (none, error) {
	d := &disk{request: m, at: filepath.Join(imageDir, serial(m.Slot))}
	if m.Name == scratch {
		d.at = scratchDir
	}
	switch {
	case m.Name == "" || m.Slot < 0:
		return none{}, fmt.Errorf("disk %.64q in slot %d: %w", m.Name, m.Slot, errdefs.ErrInvalidArgument)
	case m.FS != "erofs" && m.FS != "ext4" && (m.FS != "" || !m.Volume && m.Name != agentv1.RingDisk):
		return none{}, fmt.Errorf("file system %.32q: %w", m.FS, errdefs.ErrNotImplemented)
	}
	a.mu.Lock()
	old := a.disks[m.Name]
	if old == nil {
		a.disks[m.Name] = d
	}
	a.mu.Unlock()
	switch {
	case old == nil:
	case old.request != m:
		return none{}, fmt.Errorf("disk %.64q is mounted from slot %d: %w", m.Name, old.request.Slot, errdefs.ErrAlreadyExists)
	case !old.ready:
		return none{}, fmt.Errorf("disk %.64q is being mounted: %w", m.Name, agentv1.ErrBusy)
	default:
		return none{}, nil
	}
	device, err := a.mountDisk(m, d.at)
	if err == nil && m.Name == scratch {
		if err = reuse(d.at); err != nil {
			err = errors.Join(err, blockdev.Unmount(ctx, d.at))
		}
	}
	a.mu.Lock()
	if err != nil {
		delete(a.disks, m.Name)
		a.mu.Unlock()
		return none{}, fmt.Errorf("mount disk %.64q of slot %d: %w", m.Name, m.Slot, err)
	}
	d.ready, d.device = true, device
	room := a.pod.ScratchBytes // 0 before Configure, which limits it later
	a.mu.Unlock()
	if m.Name != scratch {
		return none{}, nil
	}
	return none{}, ballast(scratchDir, room)
}

// mountDisk mounts the disk of a slot, unless it has no file system, and returns the device.
func (a *Agent) mountDisk(m agentv1.Mount, at string) (device string, err error) {
	if device, err = a.findDisk(m.Slot); err != nil {
		return "", err
	}
	if device, err = a.fit(device, m); err != nil {
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
func (a *Agent) fit(device string, m agentv1.Mount) (string, error) {
	a.slots.Lock()
	defer a.slots.Unlock()
	want := m.Bytes
	if !m.Volume {
		want = slot.Size
	}
	if !m.Volume && !a.resized[m.Slot] {
		return device, nil
	}
	if a.resized == nil {
		a.resized = map[int]bool{}
	}
	a.resized[m.Slot] = want != slot.Size
	now, err := blockdev.Fit(device, want, readAhead)
	a.devices[serial(m.Slot)] = now
	return now, err
}

// readAhead is the size of a disk request, in KiB. Each request costs a millisecond under emulation, and the host has
// the data in memory.
const readAhead = "512"

// findDisk returns the device of a slot. Slots never change, and reading a serial is a request to the disk, so it reads
// all serials once.
func (a *Agent) findDisk(number int) (string, error) {
	a.slots.Lock()
	defer a.slots.Unlock()
	if device := a.devices[serial(number)]; device != "" {
		return device, nil
	}
	files, err := filepath.Glob("/sys/block/vd*/serial")
	if err != nil {
		return "", err
	}
	a.devices = map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		device := filepath.Join("/dev", filepath.Base(filepath.Dir(file)))
		if err := blockdev.ReadAhead(device, readAhead); err != nil {
			return "", err
		}
		a.devices[strings.Trim(string(data), "\x00\n")] = device
	}
	if device := a.devices[serial(number)]; device != "" {
		return device, nil
	}
	return "", fmt.Errorf("the slot has no device: %w", errdefs.ErrNotFound)
}

func (a *Agent) unmount(ctx context.Context, m agentv1.Unmount) (none, error) {
	if m.Name == agentv1.SharesMount {
		return none{}, a.unmountShares(ctx)
	}
	a.mu.Lock()
	d := a.disks[m.Name]
	if d == nil {
		a.mu.Unlock()
		return none{}, nil
	}
	if !d.ready && !d.left || d.users > 0 || (m.Name == scratch && len(a.containers) > 0) {
		a.mu.Unlock()
		return none{}, fmt.Errorf("disk %.64q is in use: %w", m.Name, agentv1.ErrBusy)
	}
	left := d.left
	d.ready, d.left = false, false
	a.mu.Unlock()
	left, err := d.unmount(ctx, left)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		d.ready, d.left = !left, left
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("%w: %w", agentv1.ErrBusy, err)
		}
		return none{}, fmt.Errorf("unmount disk %.64q: %w", m.Name, err)
	}
	delete(a.disks, m.Name)
	return none{}, nil
}

// growVolume grows a volume's file system to its disk's size. A device without a file system is done once the kernel
// knows the size.
func (a *Agent) growVolume(ctx context.Context, g agentv1.Grow) (none, error) {
	d, free, err := a.useDisk(g.Name)
	if err != nil {
		return none{}, err
	}
	defer free()
	if !d.request.Volume || d.request.ReadOnly {
		return none{}, fmt.Errorf("disk %.64q must be a writable volume: %w", g.Name, errdefs.ErrInvalidArgument)
	}
	if err := blockdev.Grown(ctx, d.device, g.Bytes); err != nil || d.request.FS == "" {
		return none{}, err
	}
	return none{}, blockdev.Grow(d.at, d.device)
}

// unmount unmounts a disk, unless an earlier call did. Afterwards a volume's device is free, and all writes are on it.
func (d *disk) unmount(ctx context.Context, before bool) (left bool, err error) {
	if d.request.FS != "" && !before {
		if err := blockdev.Unmount(ctx, d.at); err != nil && !errors.Is(err, unix.EINVAL) {
			return false, err
		}
		if !d.request.Volume {
			return true, nil
		}
	}
	return d.request.FS != "", blockdev.Free(ctx, d.device, d.request.ReadOnly)
}

func (a *Agent) flush(context.Context, none) (none, error) {
	unix.Sync()
	return none{}, nil
}

// useDisk counts one more user of a disk; release counts it out.
func (a *Agent) useDisk(name string) (d *disk, release func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d = a.disks[name]
	if d == nil || !d.ready {
		return nil, nil, fmt.Errorf("disk %.64q is not mounted: %w", name, errdefs.ErrNotFound)
	}
	d.users++
	return d, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		d.users--
	}, nil
}

// writable returns the directory for containers' writes: the scratch disk, or memory.
func (a *Agent) writable() (string, error) {
	a.mu.Lock()
	d := a.disks[scratch]
	ready := d != nil && d.ready
	a.mu.Unlock()
	if ready {
		return scratchDir, nil
	}
	a.volumes.Lock()
	defer a.volumes.Unlock()
	if _, err := os.Stat(memoryDir); err == nil {
		return memoryDir, nil
	}
	if err := os.MkdirAll(memoryDir, 0o711); err != nil {
		return "", err
	}
	if err := unix.Mount("memory", memoryDir, "tmpfs", 0, "mode=0711"); err != nil {
		return "", errors.Join(err, os.Remove(memoryDir))
	}
	return memoryDir, scratchLayout(memoryDir)
}
