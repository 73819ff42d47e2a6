package guesttree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrKept is of files that stayed as they were: immutable ones, those of a file system that is only read, or of a server
// that does not serve root.
var ErrKept = errors.New("the group of some of its files cannot be changed")

// Give makes all files of a tree a group's, as a kubelet does for a pod's fsGroup: its members may read and
// write what the owner may, and what is made in a directory is the group's too. It does nothing if the
// top is so already. The top comes last, so that an attempt that was cut short is made again. No link
// leads out of the tree, nothing that is mounted in it is given, and no file is set-id after it. Of a tree with more than
// MaxLevels directories in each other what lies within is given: ErrBounds. What nobody may change stays as it is, and all
// else is given: ErrKept.
func Give(ctx context.Context, path string, group int) error {
	return giveBelow(ctx, path, group, false)
}

// GiveAnyhow is Give also of a tree whose top is the group's already.
func GiveAnyhow(ctx context.Context, path string, group int) error {
	return giveBelow(ctx, path, group, true)
}

func giveBelow(ctx context.Context, path string, group int, anyhow bool) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	top := os.NewFile(uintptr(fd), path)
	defer top.Close()
	return GiveAt(ctx, top, group, anyhow)
}

// GiveAt is Give, or GiveAnyhow, of the tree whose top is open, wherever it is by now. O_PATH suffices.
func GiveAt(ctx context.Context, top *os.File, group int, anyhow bool) error {
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
		err := give(dir, name, group)
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

// give gives one file, by a descriptor: a pod may swap names meanwhile. One that another pod removes
// is nobody's, and what is mounted there is another tree's.
func give(dir int, name string, group int) error {
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
