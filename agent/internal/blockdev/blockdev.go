// Package blockdev manages the guest's block devices: their sizes, mounts and release.
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

// sector is the kernel's unit of sizes in bytes, for all devices.
const sector = 512

// sysfs returns the path of a device's attribute in sysfs.
func sysfs(device string, names ...string) string {
	return filepath.Join(append([]string{"/sys/block", filepath.Base(device)}, names...)...)
}

// Size returns a device's size in bytes, as known to the kernel.
func Size(device string) (int64, error) {
	raw, err := os.ReadFile(sysfs(device, "size"))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n * sector, err
}

// Fit makes the kernel read the size of an unused virtio device if it does not know the given size yet. It does so by
// binding the driver again. It returns the device's new name, which differs while a container has the old device open.
// The read-ahead stays the same.
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

// ReadAhead sets a device's read-ahead in KiB.
func ReadAhead(device, kib string) error {
	return os.WriteFile(sysfs(device, "queue", "read_ahead_kb"), []byte(kib), 0)
}

// Forget drops the kernel's cached blocks of a device.
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

// A released device stays busy for a moment. A container that is being created has a copy of every mount. A new process
// has copies of the agent's descriptors.
const (
	freeWait = 2 * time.Second
	freeLook = 5 * time.Millisecond // there is no event for it
)

// Free waits until no file system uses a device and all its writes are done. Otherwise its error matches EBUSY.
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

// Unmount unmounts a file system. The error is the kernel's: it matches EBUSY while the mount is in use, and EINVAL if
// nothing is mounted there.
func Unmount(ctx context.Context, at string) error {
	return whileBusy(ctx, func() error { return unix.Unmount(at, 0) })
}

// whileBusy repeats do while it fails with EBUSY.
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

// Number returns the device's number.
func Number(device string) (major, minor uint32, err error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", device, err)
	}
	return unix.Major(st.Rdev), unix.Minor(st.Rdev), nil
}
