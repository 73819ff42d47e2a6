package blockdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// growLook is the interval between reads of a device's size while it changes.
const growLook = 2 * time.Millisecond

// Grown waits until a device has the size in bytes that the host has announced to the kernel.
func Grown(ctx context.Context, device string, bytes int64) error {
	for {
		size, err := Size(device)
		if err != nil || size >= bytes/sector*sector {
			return err
		}
		select {
		case <-time.After(growLook):
		case <-ctx.Done():
			return fmt.Errorf("%s has %d bytes, want %d: %w", device, size, bytes, context.Cause(ctx))
		}
	}
}

// resizeExt4 is the kernel's EXT4_IOC_RESIZE_FS: _IOW('f', 16, u64).
const resizeExt4 = 0x40086610

// Grow grows a mounted ext4 to its device's size, while it is in use. It does nothing if the sizes match.
func Grow(at, device string) error {
	size, err := Size(device)
	if err != nil {
		return err
	}
	block, blocks, err := superblock(device)
	if err != nil {
		return fmt.Errorf("read the file system of %s: %w", device, err)
	}
	want := uint64(size) / block
	if want <= blocks {
		return nil
	}
	dir, err := os.Open(at)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), resizeExt4, uintptr(unsafe.Pointer(&want))); errno != 0 {
		return fmt.Errorf("grow the file system of %s from %d to %d blocks: %w", device, blocks, want, errno)
	}
	return nil
}

// superblock reads the size of an ext4's blocks, in bytes, and their number.
func superblock(device string) (block, blocks uint64, err error) {
	f, err := os.Open(device)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var raw [1024]byte
	if _, err := f.ReadAt(raw[:], 1024); err != nil {
		return 0, 0, err
	}
	const (
		countLow, logSize, magic, incompatible, countHigh = 4, 24, 56, 96, 0x150
		is64bit                                           = 0x80
	)
	log := binary.LittleEndian.Uint32(raw[logSize:])
	if binary.LittleEndian.Uint16(raw[magic:]) != 0xef53 || log > 6 {
		return 0, 0, errors.New("not an ext4 file system")
	}
	block = 1024 << log
	blocks = uint64(binary.LittleEndian.Uint32(raw[countLow:]))
	if binary.LittleEndian.Uint32(raw[incompatible:])&is64bit != 0 {
		blocks |= uint64(binary.LittleEndian.Uint32(raw[countHigh:])) << 32
	}
	return block, blocks, nil
}
