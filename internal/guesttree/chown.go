package guesttree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrKept is returned if some files could not be changed: immutable ones, or those of a read-only file system or of a
// server that does not accept root.
var ErrKept = errors.New("the group of some of its files cannot be changed")

// Chown changes all files of a tree to a group, as a kubelet does for a pod's fsGroup. The group's members may read and
// write like the owner, and new files in its directories belong to the group too. If the top is so already, it does
// nothing. The top comes last, so that an interrupted call is repeated. It follows no link out of the tree, skips
// mounts, and drops set-id bits. If a tree has more than MaxLevels nested directories, it changes only those levels and
// returns ErrBounds. If some files cannot be changed, it changes all others and returns ErrKept.
func Chown(ctx context.Context, path string, group int) error {
	return chownPath(ctx, path, group, false)
}

// ChownAlways is like Chown, but also for a tree with a top that belongs to the group already.
func ChownAlways(ctx context.Context, path string, group int) error {
	return chownPath(ctx, path, group, true)
}

func chownPath(ctx context.Context, path string, group int, anyhow bool) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	top := os.NewFile(uintptr(fd), path)
	defer top.Close()
	return ChownAt(ctx, top, group, anyhow)
}

// ChownAt is like Chown, or ChownAlways, for the tree with an open top, wherever it is now. O_PATH suffices.
func ChownAt(ctx context.Context, top *os.File, group int, anyhow bool) error {
	at := int(top.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return fmt.Errorf("stat %s: %w", top.Name(), err)
	}
	const full = unix.S_ISGID | 0o070
	if !anyhow && int(st.Gid) == group && st.Mode&full == full {
		return nil
	}
	kept := false
	one := func(dir int, name string, _ *unix.Stat_t) error {
		err := chownFile(dir, name, group)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
			kept, err = true, nil
		}
		return err
	}
	err := walk(ctx, top, Bounds{Levels: MaxLevels}, one)
	if err == nil {
		err = one(at, ".", nil)
	}
	if err == nil && kept {
		err = ErrKept
	}
	return err
}

// chownFile changes one file through a descriptor: a pod may swap names meanwhile. It skips files that a pod has removed,
// and mounts, which are other trees.
func chownFile(dir int, name string, group int) error {
	fd, err := openat2(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open a file: %w", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = errors.Join(unix.Fstat(fd, &st), unix.Fchownat(fd, "", -1, group, unix.AT_EMPTY_PATH))
	if err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return err
	}
	mode := st.Mode&(unix.S_ISVTX|0o777) | 0o660
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= st.Mode&unix.S_ISUID | unix.S_ISGID | 0o110
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
}
