package surrogate

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/thread"
)

// stage makes the staging namespace. This process does not enter it yet.
func stage() error {
	return thread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make the staging namespace: %w", err)
		}
		fd, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("find the staging namespace: %w", err)
		}
		defer unix.Close(fd)
		return unix.Dup3(fd, StagingFD, unix.O_CLOEXEC)
	})
}

// stagedRoot is the container's root in the staging namespace.
const stagedRoot = "/0"

// view puts this process into a mount namespace with the container's root, its directories of the host, and an empty
// file system where the guest has one of its own. Clients join it to copy files. destinations[i] is the place of staged
// tree i+1; an empty file system begins with emptyMark. A place that is missing in the root stays out.
func view(destinations []string) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the root: %w", err)
	}
	if err := unix.Setns(StagingFD, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the staging namespace: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("copy the staging namespace: %w", err)
	}
	root, err := unix.Open(stagedRoot, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the root: %w", err)
	}
	defer unix.Close(root)
	tree := 0
	for _, at := range destinations {
		empty := len(at) > 0 && at[:1] == emptyMark
		if empty {
			at = at[1:]
		} else {
			tree++
		}
		err := mountIn(root, at, tree, empty)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("mount %.200q: %w", at, err)
		}
	}
	if proc, err := unix.Openat2(root, "proc", within(unix.O_PATH|unix.O_DIRECTORY)); err == nil {
		_ = mountKernel(proc, "proc", nil) // clients list processes there
		unix.Close(proc)
	}
	if err := unix.Fchdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return unix.Chdir("/")
}

// enter moves this process into the mount namespace that it was given.
func enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the root: %w", err)
	}
	if err := unix.Setns(StagingFD, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the container's mounts: %w", err)
	}
	return nil
}

// emptyMark begins the destination of an empty file system.
const emptyMark = "-"

// within opens a path inside the root, whatever links the container has made there.
func within(flags uint64) *unix.OpenHow {
	return &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
}

// mountIn mounts a staged tree, or an empty file system, at a path in the root.
func mountIn(root int, at string, tree int, empty bool) error {
	place, err := unix.Openat2(root, at, within(unix.O_PATH))
	if err != nil {
		return err
	}
	defer unix.Close(place)
	if empty {
		return mountKernel(place, "tmpfs", map[string]string{"size": "4k", "mode": "0555"})
	}
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE
	mount, err := unix.OpenTree(unix.AT_FDCWD, "/"+strconv.Itoa(tree), flags)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return moveTo(mount, place)
}

// mountKernel mounts a file system of the kernel read-only.
func mountKernel(place int, kind string, options map[string]string) error {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	for key, value := range options {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	const attributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	return moveTo(mount, place)
}

func moveTo(mount, place int) error {
	return unix.MoveMount(mount, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}
