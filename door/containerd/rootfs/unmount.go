package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Times of Unmount.
const (
	// busy bounds the wait for the last users of a mount, such as a scanner that has a file open.
	busy = 2 * time.Second
	// again is the time between attempts.
	again = 20 * time.Millisecond
)

// Unmount removes all mounts at target and below, and succeeds if there are none. A mount that stays busy is detached: it
// is gone from the tree, and the kernel releases it after its last user. Unmount follows no link at target.
func Unmount(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, busy)
	defer cancel()
	for range maxMounts { // several mounts may lie over each other
		gone, err := unmountOne(ctx, target)
		if err != nil {
			return fmt.Errorf("unmount: %w", &os.PathError{Op: "umount", Path: target, Err: err})
		}
		if gone {
			return nil
		}
	}
	return fmt.Errorf("unmount %s: still mounted", target)
}

// unmountOne removes the topmost mount at target, and reports whether there was none.
func unmountOne(ctx context.Context, target string) (gone bool, err error) {
	for {
		err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return true, nil // no mount
		case !errors.Is(err, unix.EBUSY):
			return false, err
		}
		if err := unmountBelow(target); err != nil {
			return false, err
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return false, unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
	}
}

// unmountBelow detaches the mounts below target, which keep it busy. The last one goes first.
func unmountBelow(target string) error {
	mounts, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(i.Mountpoint, target+"/"), false
	})
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil
}
