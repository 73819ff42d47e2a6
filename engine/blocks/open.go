package blocks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// ErrInUse is matched if another pod has the block device, or if the host has mounted it.
var ErrInUse = errdefs.ErrFailedPrecondition.WithMessage("in use")

func inUse(path, by string) error {
	return failure.Wrap(ErrInUse, "volume %.200q: %s", path, by)
}

// sector is the unit of a disk's length, in bytes.
const sector = 512

const (
	// lastWait bounds the wait for a disk, because the VM that has it may be ending.
	lastWait = 3 * time.Second
	// retry is the interval between attempts. There is no event for the end of a lock.
	retry = 10 * time.Millisecond
)

// Disk is an open block device, or a file used as one, with an exclusive or a shared (read-only) lock. The host
// cannot mount a block device that is open for writing, and a mounted one is not opened. The host can still mount
// one that is open for reading.
type Disk struct{ *os.File }

// errMoved means that a path names another file than the opened one.
var errMoved = errors.New("the file at this path was replaced")

// Open opens and locks a disk by a path without links. It must be the block device with that number, as in stat(2),
// or any disk for 0. Open waits up to lastWait for a disk in use; its error then matches ErrInUse.
func Open(ctx context.Context, path string, device uint64, readOnly bool) (*Disk, error) {
	until := time.Now().Add(lastWait)
	for {
		d, err := open(path, device, readOnly)
		if !errors.Is(err, ErrInUse) && !errors.Is(err, errMoved) || time.Now().After(until) {
			return d, err
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func open(path string, device uint64, readOnly bool) (_ *Disk, err error) {
	how := &unix.OpenHow{Flags: unix.O_RDWR | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_NO_SYMLINKS}
	lock := unix.LOCK_EX
	if readOnly {
		how.Flags, lock = unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, unix.LOCK_SH
	}
	// The kind is checked first, because opening a FIFO or a terminal has side effects.
	isDevice, err := isBlockDevice(path, device)
	if err != nil {
		return nil, err
	}
	if isDevice && !readOnly {
		how.Flags |= unix.O_EXCL // the kernel's own lock, against the host's mounts
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
	if errors.Is(err, unix.EBUSY) {
		return nil, inUse(path, "another pod has it, or this host has mounted it")
	}
	if err != nil {
		return nil, &failure.Error{Class: classOf(err), Text: fmt.Sprintf("open volume %.200q", path), Err: err}
	}
	d := &Disk{os.NewFile(uintptr(fd), path)}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if isDevice, err = d.check(device, readOnly); err != nil {
		return nil, err
	}
	switch err := unix.Flock(fd, lock|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, inUse(path, "another pod has it")
	case err != nil:
		return nil, fmt.Errorf("lock volume %.200q: %w", path, err)
	}
	if err := d.there(); err != nil {
		return nil, err
	}
	if isDevice && readOnly {
		if err := d.unclaimed(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// there checks that the file is still the one at its path. A lock on a removed or replaced file does not protect
// the present one.
func (d *Disk) there() error {
	var own, now unix.Stat_t
	if err := unix.Lstat(d.Name(), &now); err != nil {
		return &failure.Error{Class: classOf(err), Text: fmt.Sprintf("volume %.200q", d.Name()), Err: err}
	}
	if err := unix.Fstat(int(d.Fd()), &own); err != nil {
		return fmt.Errorf("volume %.200q: %w", d.Name(), err)
	}
	if own.Dev != now.Dev || own.Ino != now.Ino {
		return fmt.Errorf("volume %.200q: %w", d.Name(), errMoved)
	}
	return nil
}

// unclaimed checks that the host has not mounted a block device that is open for reading, or a part of it. It
// releases its own exclusive claim at once, which would exclude other readers. If two pods check at the same time,
// the second one retries.
func (d *Disk) unclaimed() error {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(d.Fd())), unix.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return inUse(d.Name(), "this host has mounted it")
	}
	if err != nil {
		return &failure.Error{Class: classOf(err), Text: fmt.Sprintf("claim volume %.200q", d.Name()), Err: err}
	}
	return unix.Close(fd)
}

// check checks the open file, which may have been replaced after judge.
func (d *Disk) check(number uint64, readOnly bool) (device bool, err error) {
	if device, err = kindOf(int(d.Fd()), d.Name(), number); err != nil {
		return false, err
	}
	size, err := d.Seek(0, 2)
	switch {
	case err != nil:
		return false, fmt.Errorf("size of volume %.200q: %w", d.Name(), err)
	case size == 0 || size%sector != 0:
		return false, failure.Invalid("volume %.200q has %d bytes, not a multiple of %d", d.Name(), size, sector)
	}
	if !device && !readOnly && size > slot.Size {
		return false, failure.Unsupported("volume %.200q: a writable file of %d bytes is too large, at most %d (block devices may be larger)",
			d.Name(), size, int64(slot.Size))
	}
	return device, nil
}
