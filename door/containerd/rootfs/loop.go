package rootfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tries is how often another process may take the free loop device first.
const tries = 100

// attach returns a loop device for the file at path. The device is released with its last user.
func attach(path string, readOnly bool) (*os.File, error) {
	flags, loopFlags := os.O_RDWR, uint32(unix.LO_FLAGS_AUTOCLEAR)
	if readOnly {
		flags, loopFlags = os.O_RDONLY, loopFlags|unix.LO_FLAGS_READ_ONLY
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, fmt.Errorf("attach a loop device: %w", err)
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("attach a loop device: %w", err)
	}
	defer control.Close()
	for range tries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("attach a loop device: find a free one: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), flags, 0)
		if err != nil {
			return nil, fmt.Errorf("attach a loop device: %w", err)
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: loopFlags}}
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			return device, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach a loop device to %s: %w", path, err)
		}
	}
	return nil, fmt.Errorf("attach a loop device to %s: other processes took every free one", path)
}
