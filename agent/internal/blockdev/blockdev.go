// Package blockdev looks after the guest's block devices: their sizes, and when they are free.
package blockdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sector is the unit in which the kernel tells sizes, whatever the device's own.
const sector = 512

// sysfs is what the kernel tells of a device.
func sysfs(device string, names ...string) string {
	return filepath.Join(append([]string{"/sys/block", filepath.Base(device)}, names...)...)
}

// Size is a device's size in bytes, as the kernel knows it.
func Size(device string) (int64, error) {
	raw, err := os.ReadFile(sysfs(device, "size"))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n * sector, err
}

// Fit has the kernel know that a device of virtio, which nobody uses, is so many bytes long: if
// it does not yet, its driver looks at it anew. It returns what the device is called then, with the same
// read-ahead: while a container has the old one open, that one keeps its name.
func Fit(device string, bytes int64, readAhead string) (now string, err error) {
	size, err := Size(device)
	if err != nil || size == bytes/sector*sector {
		return device, err
	}
	to, err := os.Readlink(sysfs(device, "device"))
	if err != nil {
		return device, err
	}
	for _, verb := range []string{"unbind", "bind"} {
		if err := os.WriteFile("/sys/bus/virtio/drivers/virtio_blk/"+verb, []byte(filepath.Base(to)), 0); err != nil {
			return device, fmt.Errorf("%s %s: %w", verb, device, err)
		}
	}
	names, err := os.ReadDir(filepath.Join("/sys/bus/virtio/devices", filepath.Base(to), "block"))
	if err != nil || len(names) != 1 {
		return device, errors.Join(fmt.Errorf("%s has %d devices after it was bound again", device, len(names)), err)
	}
	now = filepath.Join("/dev", names[0].Name())
	if err := ReadAhead(now, readAhead); err != nil {
		return now, err
	}
	if size, err = Size(now); err == nil && size != bytes/sector*sector {
		err = fmt.Errorf("%s has %d bytes, want %d", now, size, bytes)
	}
	return now, err
}

// ReadAhead sets how many KiB of a device are asked for at once.
func ReadAhead(device, kib string) error {
	return os.WriteFile(sysfs(device, "queue", "read_ahead_kb"), []byte(kib), 0)
}

// Forget has the kernel forget what it knows of a device's contents.
func Forget(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return fmt.Errorf("flush %s: %w", device, err)
	}
	return nil
}

// What is given up is in use for a moment: a container that is being made has a copy of every mount, and each process that
// is being made one of the agent's descriptors.
const (
	freeWait = 2 * time.Second
	freeLook = 5 * time.Millisecond // the kernel has no event for it
)

// Free returns when no file system has a device any more, with all written that was to be, or
// an error that matches EBUSY.
func Free(ctx context.Context, device string, readOnly bool) error {
	flags := unix.O_RDWR
	if readOnly {
		flags = unix.O_RDONLY
	}
	return whileBusy(ctx, func() error {
		fd, err := unix.Open(device, flags|unix.O_EXCL|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Fsync(fd)
			unix.Close(fd)
		}
		return err
	})
}

// Unmount unmounts what is mounted at a place. The error is the kernel's: it matches EBUSY while something there is in use, and
// EINVAL where nothing is mounted.
func Unmount(ctx context.Context, at string) error {
	return whileBusy(ctx, func() error { return unix.Unmount(at, 0) })
}

// whileBusy tries again until what is done does not fail with EBUSY.
func whileBusy(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, freeWait)
	defer cancel()
	for {
		err := do()
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-time.After(freeLook):
		case <-ctx.Done():
			return err
		}
	}
}

// Number is the device's number.
func Number(device string) (major, minor uint32, err error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", device, err)
	}
	return unix.Major(st.Rdev), unix.Minor(st.Rdev), nil
}
