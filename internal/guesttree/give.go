package guesttree

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrKept is of files that stayed as they were: immutable ones, those of a file system that is only read, or of a server
// that does not serve root.
var ErrKept = errors.New("some of its files cannot be given")

// Give makes all files of a tree a group's, as a kubelet does for a pod's fsGroup: its members may read and
// write what the owner may, and what is made in a directory is the group's too. It does nothing if the
// top is so already. The top comes last, so that an attempt that was cut short is made again. No link
// leads out of the tree, and no file is set-id after it. Of a tree with more than MaxLevels directories in
// each other what lies within is given: ErrBounds. What nobody may change stays as it is, and all else is given: ErrKept.
func Give(ctx context.Context, path string, group int) error {
	var top unix.Stat_t
	if err := unix.Lstat(path, &top); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	const full = unix.S_ISGID | 0o070
	if int(top.Gid) == group && top.Mode&full == full {
		return nil
	}
	return GiveAnyhow(ctx, path, group)
}

// GiveAnyhow is Give also of a tree whose top is the group's already.
func GiveAnyhow(ctx context.Context, path string, group int) error {
	kept := false
	one := func(dir int, name string, _ *unix.Stat_t) error {
		err := give(dir, name, group)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
			kept, err = true, nil
		}
		return err
	}
	err := Walk(ctx, path, Bounds{Levels: MaxLevels}, one)
	if err == nil {
		err = one(unix.AT_FDCWD, path, nil)
	}
	if err == nil && kept {
		err = ErrKept
	}
	return err
}

// give gives one file, by a descriptor: a pod may swap names meanwhile. One that another pod removes
// is nobody's.
func give(dir int, name string, group int) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
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
