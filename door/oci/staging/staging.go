// Package staging puts a container's directories and files of the host into a mount namespace of their own. The engine
// and the surrogate clone them from there. So no other process looks up a path of the client.
package staging

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/thread"
	"github.com/bulkhead-project/bulkhead/oci/convert"
)

// Fill moves a new mount namespace of another process to a small file system that has tree n at /n. It mounts at the
// directory at, in that namespace only. The caller's own mounts stay as they are. Fill creates missing mount points in the
// first tree, which is the root.
func Fill(namespace *os.File, at string, trees []convert.Tree, points []convert.MountPoint) error {
	for _, p := range points {
		if err := ensure(trees[0].Source, p); err != nil {
			return fmt.Errorf("mount at %.200s: create the mount point in the root: %w", p.Path, err)
		}
	}
	return thread.Do(func() error { return fillHere(namespace, at, trees) })
}

// fillHere moves the calling thread to the namespace and fills it.
func fillHere(namespace *os.File, at string, trees []convert.Tree) error {
	clones := make([]int, 0, len(trees))
	defer func() {
		for _, fd := range clones {
			unix.Close(fd)
		}
	}()
	for _, t := range trees {
		fd, err := open(t)
		if err != nil {
			return fmt.Errorf("mount at %s: %w", t.Destination, err)
		}
		clones = append(clones, fd)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the root: %w", err)
	}
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the staging namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("prepare the staging namespace: %w", err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// The root of another user namespace passes through it to the trees.
	if err := unix.Mount("bulkhead", at, "tmpfs", flags, "mode=0711,size=1m"); err != nil {
		return fmt.Errorf("mount the staging directory: %w", err)
	}
	if err := unix.Chdir(at); err != nil {
		return err
	}
	for i, fd := range clones {
		if err := place(fd, strconv.Itoa(i)); err != nil {
			return fmt.Errorf("mount at %s: stage it: %w", trees[i].Destination, err)
		}
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root of the staging namespace: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the client's mounts: %w", err)
	}
	return nil
}

// open returns a detached mount of a tree.
func open(t convert.Tree) (int, error) {
	if len(t.Overlay) > 0 {
		return overlay(t)
	}
	if t.IDMap != nil {
		return -1, errors.New("a mapping of owners is not supported yet")
	}
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if t.Recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, t.Source, flags)
	if err != nil {
		return -1, fmt.Errorf("clone the mount %s: %w", t.Source, err)
	}
	if err := restrict(fd, t); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set the mount's attributes: %w", err)
	}
	return fd, nil
}

// restrict sets the propagation and the attributes of a tree.
func restrict(fd int, t convert.Tree) error {
	all := unix.MountAttr{Attr_set: t.Below.Set, Attr_clr: t.Below.Clear, Propagation: unix.MS_PRIVATE}
	if t.Follow {
		all.Propagation = unix.MS_SLAVE
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &all); err != nil {
		return err
	}
	if t.Attributes == (convert.Attributes{}) {
		return nil
	}
	top := unix.MountAttr{Attr_set: t.Attributes.Set, Attr_clr: t.Attributes.Clear}
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &top)
}

// overlay returns a detached overlay file system with the tree's options.
func overlay(t convert.Tree) (int, error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open an overlay: %w", err)
	}
	defer unix.Close(fs)
	for _, option := range t.Overlay {
		key, value, found := strings.Cut(option, "=")
		if !found {
			err = unix.FsconfigSetFlag(fs, key)
		} else {
			err = unix.FsconfigSetString(fs, key, value)
		}
		if err != nil {
			return -1, fmt.Errorf("overlay option %.80q: %w", key, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make an overlay: %w", err)
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(t.Attributes.Set))
}

// place mounts a tree in the current directory.
func place(tree int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := unix.Mkdir(name, 0o700); err != nil {
			return err
		}
	} else {
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
