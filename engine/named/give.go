package named

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// giveWait bounds how long the start of a pod waits for the files of a volume to be given.
const giveWait = time.Minute

// Give makes all files of a Shared volume a group's, as a kubelet does for a pod's fsGroup: its
// members may read and write what the owner may, and what is made in a directory is the group's
// too. It does nothing if the top is so already, nor for an engine that is not root, whose pods know
// no other group. No link that a pod has put there leads out of the volume, and no file is set-id after
// it. ErrInvalid of a volume with more than guesttree.MaxLevels directories in each other, or with
// more files than a minute suffices for: what lies within is given, and the next call begins anew.
func (s *Store) Give(ctx context.Context, name string, group int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := give(ctx, s.Files(name), group); err != nil {
		return fmt.Errorf("give volume %s to group %d: %w", name, group, err)
	}
	return nil
}

func give(ctx context.Context, path string, group int) error {
	var top unix.Stat_t
	if err := unix.Lstat(path, &top); err != nil {
		return err
	}
	const full = unix.S_ISGID | 0o070
	if int(top.Gid) == group && top.Mode&full == full {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, giveWait)
	defer cancel()
	bounds := guesttree.Bounds{Levels: guesttree.MaxLevels}
	err := guesttree.Walk(within, path, bounds, func(dir int, name string, _ *unix.Stat_t) error {
		return giveOne(dir, name, group)
	})
	switch {
	case errors.Is(err, guesttree.ErrBounds):
		return fmt.Errorf("%w: more than %d directories lie in each other", ErrInvalid, guesttree.MaxLevels)
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: it has more files than %v suffices for", ErrInvalid, giveWait)
	case err != nil:
		return err
	}
	// The top comes last, so that an attempt that was cut short is made again.
	return giveOne(unix.AT_FDCWD, path, group)
}

// giveOne gives one file, by a descriptor: a pod may swap names meanwhile. One that another pod removes
// is nobody's.
func giveOne(dir int, name string, group int) error {
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
