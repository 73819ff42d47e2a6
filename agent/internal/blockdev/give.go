package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Give makes all files below a directory, which nobody else has yet, a group's, as a kubelet
// does for a pod's fsGroup: its members may read and write what the owner may, and what is made
// in a directory is the group's too. It does nothing if the directory itself is so already.
func Give(at string, group int, writable bool) error {
	var st unix.Stat_t
	if err := unix.Lstat(at, &st); err != nil {
		return fmt.Errorf("give %s to group %d: %w", at, group, err)
	}
	const full = unix.S_ISGID | 0o070
	if !writable || int(st.Gid) == group && st.Mode&full == full {
		return nil
	}
	// Its own directory comes last, so that an attempt that was cut short is made again.
	err := filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == at {
			return err
		}
		return give(path, d, group)
	})
	if err == nil {
		err = errors.Join(unix.Lchown(at, int(st.Uid), group), unix.Chmod(at, st.Mode&0o7777|unix.S_ISGID|0o770))
	}
	if err != nil {
		return fmt.Errorf("give %s to group %d: %w", at, group, err)
	}
	return nil
}

func give(path string, d fs.DirEntry, group int) error {
	if err := unix.Lchown(path, -1, group); err != nil {
		return err
	}
	if d.Type()&fs.ModeSymlink != 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err
	}
	mode := st.Mode&0o7777 | 0o660
	if d.IsDir() {
		mode |= unix.S_ISGID | 0o110
	}
	return unix.Chmod(path, mode)
}
