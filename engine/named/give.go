package named

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Give makes all files of a Shared volume a group's, as a kubelet does for a pod's fsGroup: its
// members may read and write what the owner may, and what is made in a directory is the group's
// too. It does nothing if the top is so already, nor for an engine that is not root, whose pods know
// no other group. No link that a pod has put there leads out of the volume.
func (s *Store) Give(ctx context.Context, name string, group int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	root, err := os.OpenRoot(s.Files(name))
	if err == nil {
		defer root.Close()
		err = give(ctx, root, group)
	}
	if err != nil {
		return fmt.Errorf("give volume %s to group %d: %w", name, group, err)
	}
	return nil
}

func give(ctx context.Context, root *os.Root, group int) error {
	top, err := root.Lstat(".")
	if err != nil {
		return err
	}
	const full = fs.ModeSetgid | 0o070
	if st, ok := top.Sys().(*syscall.Stat_t); ok && int(st.Gid) == group && top.Mode()&full == full {
		return nil
	}
	// The top comes last, so that an attempt that was cut short is made again.
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && path != ".":
			return nil // another pod has removed it
		case err != nil || path == ".":
			return err
		}
		return giveOne(root, path, group)
	})
	if err != nil {
		return err
	}
	return giveOne(root, ".", group)
}

// giveOne gives one file. One that another pod removes meanwhile is nobody's.
func giveOne(root *os.Root, path string, group int) error {
	err := root.Lchown(path, -1, group)
	if os.IsNotExist(err) {
		return nil
	}
	info, statErr := root.Lstat(path)
	if err != nil || statErr != nil || info.Mode()&fs.ModeSymlink != 0 {
		return err
	}
	mode := info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) | 0o660
	if info.IsDir() {
		mode |= fs.ModeSetgid | 0o110
	}
	if err := root.Chmod(path, mode); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
