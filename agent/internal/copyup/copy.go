package copyup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// copier copies one tree.
type copier struct {
	ctx     context.Context //nolint:containedctx // of one call, like the copier
	entries int
	top     int              // directory of the copy
	links   map[inode]string // copies of files with several names, by path below the top
}

type inode struct{ dev, ino uint64 }

// chunk is the number of bytes copied between checks of the context.
const chunk = 1 << 20

func (c *copier) run(from, volume int) error {
	if err := unix.Mkdirat(volume, making, 0o700); err != nil {
		return fmt.Errorf("begin the copy: %w", err)
	}
	top, err := openDir(volume, making)
	if err != nil {
		return fmt.Errorf("begin the copy: %w", err)
	}
	defer unix.Close(top)
	c.top = top
	return c.dir(from, top, "", 1)
}

// dir copies a directory's entries, and then its own attributes.
func (c *copier) dir(from, to int, at string, level int) error {
	names, err := all(from)
	if err != nil {
		return fmt.Errorf("read %.200q: %w", at, err)
	}
	if c.entries += len(names); c.entries > maxEntries || level > maxLevels {
		return ErrTooMuch
	}
	if level == 1 {
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(ours, name) })
	}
	for _, name := range names {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		if err := c.entry(from, to, name, filepath.Join(at, name), level); err != nil {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return fmt.Errorf("stat %.200q: %w", at, err)
	}
	return c.finish(from, to, at, &st)
}

func (c *copier) entry(from, to int, name, at string, level int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("stat %.200q: %w", at, err)
	}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err = c.subdir(from, to, name, at, level)
	case unix.S_IFREG:
		return c.file(from, to, name, at, &st)
	case unix.S_IFLNK:
		err = link(from, to, name, &st)
	case unix.S_IFIFO:
		if err = unix.Mknodat(to, name, unix.S_IFIFO|0o600, 0); err == nil {
			err = unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
		}
		if err == nil {
			err = chmod(to, name, &st)
		}
	default:
		return nil // skip devices and sockets
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.UtimesNanoAt(to, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return fmt.Errorf("copy %.200q: %w", at, err)
	}
	return nil
}

func (c *copier) subdir(from, to int, name, at string, level int) error {
	below, err := openDir(from, name)
	if err != nil {
		return err
	}
	defer unix.Close(below)
	if err := unix.Mkdirat(to, name, 0o700); err != nil {
		return err
	}
	into, err := openDir(to, name)
	if err != nil {
		return err
	}
	defer unix.Close(into)
	return c.dir(below, into, at, level+1)
}

// chmod sets the mode of a pipe that was created. It checks the kind, because another container of the pod may have
// replaced the pipe by a link.
func chmod(dir int, name string, of *unix.Stat_t) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != of.Mode&unix.S_IFMT {
		return unix.ESTALE
	}
	return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), of.Mode&0o7777, 0)
}

func link(from, to int, name string, st *unix.Stat_t) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(from, name, target)
	if err == nil {
		err = unix.Symlinkat(string(target[:n]), to, name)
	}
	if err == nil {
		err = unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
	}
	return err
}

// file copies a file, or links an earlier copy of it.
func (c *copier) file(from, to int, name, at string, st *unix.Stat_t) error {
	id := inode{st.Dev, st.Ino}
	if first := c.links[id]; first != "" {
		if err := unix.Linkat(c.top, first, to, name, 0); err != nil {
			return fmt.Errorf("link %.200q: %w", at, err)
		}
		return nil
	}
	if st.Nlink > 1 {
		c.links[id] = at
	}
	in, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %.200q: %w", at, err)
	}
	source := os.NewFile(uintptr(in), name)
	defer source.Close()
	out, err := unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create %.200q: %w", at, err)
	}
	target := os.NewFile(uintptr(out), name)
	defer target.Close()
	for {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		if _, err := io.CopyN(target, source, chunk); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("copy %.200q: %w", at, err)
		}
	}
	return c.finish(in, out, at, st)
}

// finish copies owner, mode, extended attributes and times. The mode follows the owner, because a change of the owner
// clears set-user-id.
func (c *copier) finish(from, to int, at string, st *unix.Stat_t) error {
	err := unix.Fchown(to, int(st.Uid), int(st.Gid))
	if err == nil {
		err = unix.Fchmod(to, st.Mode&0o7777)
	}
	if err == nil {
		err = attributes(from, to)
	}
	if err == nil {
		err = unix.Futimes(to, []unix.Timeval{unix.NsecToTimeval(st.Atim.Nano()), unix.NsecToTimeval(st.Mtim.Nano())})
	}
	if err != nil {
		return fmt.Errorf("copy the attributes of %.200q: %w", at, err)
	}
	return nil
}

// maxAttributes bounds the names and values of extended attributes, in bytes. It is the kernel's own limit.
const maxAttributes = 64 << 10

func attributes(from, to int) error {
	list := make([]byte, maxAttributes)
	n, err := unix.Flistxattr(from, list)
	if err != nil || n == 0 {
		return ignored(err)
	}
	value := make([]byte, maxAttributes)
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		size, err := unix.Fgetxattr(from, name, value)
		if err == nil {
			err = unix.Fsetxattr(to, name, value[:size], 0)
		}
		if err := ignored(err); err != nil {
			return fmt.Errorf("attribute %.64q: %w", name, err)
		}
	}
	return nil
}

// ignored drops the errors for a file system without extended attributes and for a missing attribute.
func ignored(err error) error {
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}
