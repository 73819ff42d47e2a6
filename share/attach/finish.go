package attach

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// workshop is the directory where this process works with mounts, in its own mount namespace. Every host has it.
const workshop = "/proc"

// finishAll hides the masks in detached trees, and replaces each tree by a detached copy: older kernels cannot mount
// below a detached tree. The mounts do not propagate to the host.
func finishAll(all []Tree, fds []int) error {
	if !slices.ContainsFunc(all, func(t Tree) bool { return len(t.Masks) > 0 }) {
		return nil
	}
	// All trees are cloned by now: mounts of another namespace cannot be cloned.
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare the mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", workshop, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700,size=1m"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	dir, err := unix.Open(workshop, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	for i, t := range all {
		if len(t.Masks) == 0 {
			continue
		}
		finished, err := t.finish(dir, fds[i], strconv.Itoa(i))
		if err != nil {
			return fmt.Errorf("%s: %w", t.Path, err)
		}
		fds[i] = finished
	}
	return nil
}

// finish mounts a tree in dir, under a name, with its masks, and clones it. It closes tree.
func (t Tree) finish(dir, tree int, name string) (int, error) {
	defer unix.Close(tree)
	if err := mountAt(tree, dir, name); err != nil {
		return -1, err
	}
	for _, mask := range t.Masks {
		if err := hide(tree, mask); err != nil {
			return -1, fmt.Errorf("hide %s: %w", mask, err)
		}
	}
	finished, err := unix.OpenTree(tree, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("clone its mount: %w", err)
	}
	return finished, nil
}

// hide mounts an empty directory over one of a tree. It does nothing if there is none.
func hide(tree int, mask string) error {
	target, err := unix.Openat2(tree, path.Clean(mask), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(target)
	empty, err := emptyDirectory()
	if err != nil {
		return err
	}
	defer unix.Close(empty)
	return unix.MoveMount(empty, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// emptyDirectory returns a mount of an empty read-only directory.
func emptyDirectory() (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for key, value := range map[string]string{"mode": "0555", "size": "4k"} {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return -1, err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes|unix.MOUNT_ATTR_RDONLY)
}
