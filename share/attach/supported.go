package attach

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Supported returns nil if this kernel can attach directories, and the reason if not.
func Supported() error {
	// No mount has this descriptor: a kernel that gets as far as looking for it knows the call and the attributes.
	attr := unix.MountAttr{Attr_set: attributes, Propagation: unix.MS_PRIVATE}
	err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	switch {
	case errors.Is(err, unix.EBADF):
		return nil
	case errors.Is(err, unix.EPERM): // the kernel checks that before the attributes
		return old()
	}
	return tooOld(err)
}

// tooOld adds to the kernel's error for a mount's attributes what is missing.
func tooOld(err error) error {
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("mounts with nosymfollow need Linux 5.14 or later: %w", err)
	}
	return err
}

// old checks the kernel's version.
func old() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	return oldRelease(unix.ByteSliceToString(u.Release[:]))
}

func oldRelease(release string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n == 2 && (major < 5 || major == 5 && minor < 14) {
		return tooOld(fmt.Errorf("this is %s: %w", release, unix.ENOSYS))
	}
	return nil
}
