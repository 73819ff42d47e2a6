package fsys

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

// component returns an error for an invalid name of the guest's.
func component(name string) error {
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return unix.EINVAL
	case len(name) > unix.NAME_MAX:
		return unix.ENAMETOOLONG
	}
	return nil
}

// status returns the number of an error for the guest.
func status(err error) fuse.Status {
	var errno unix.Errno
	switch {
	case err == nil:
		return fuse.OK
	case errors.As(err, &errno):
		return fuse.Status(errno)
	}
	return fuse.EIO
}

// descriptors returns the most descriptors that the file system may have.
func descriptors(wanted int) (int, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("get the limit of descriptors: %w", err)
	}
	limit := int(min(l.Cur, 1<<20))
	others := max(64, limit/16) // the process's own, and those of requests
	have := limit - others
	if have < 64 {
		return 0, fmt.Errorf("%d descriptors are too few: %w", l.Cur, unix.EMFILE)
	}
	if wanted > 0 {
		have = min(have, wanted)
	}
	return have, nil
}

// openProc returns a descriptor of /proc/self/fd, from f unless f is nil.
func openProc(f *os.File) (int, error) {
	if f == nil {
		fd, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("open /proc/self/fd: %w", err)
		}
		return fd, nil
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("take /proc/self/fd over: %w", err)
	}
	return fd, nil
}

// host opens files of the host by the descriptors of their look-ups.
type host struct {
	proc int // a descriptor of /proc/self/fd
}

// reopen opens the file of a descriptor again. It is the same file, whatever its names are now. It must be a regular
// file or a directory: opening other types has side effects.
func (h host) reopen(fd, flags int) (int, error) {
	for {
		got, err := unix.Openat(h.proc, strconv.Itoa(fd), flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != unix.EINTR {
			return got, err
		}
	}
}

// open opens a node's file, if it is a regular file or a directory.
func (h host) open(r *nodes.Ref, flags int) (int, error) {
	if t := r.Type(); t != unix.S_IFREG && t != unix.S_IFDIR {
		return -1, unix.EPERM
	}
	return h.reopen(r.FD, flags)
}

// openData opens a regular file or a directory for its data.
func (h host) openData(r *nodes.Ref, by *fuse.InHeader, flags int, kill bool) (int, error) {
	truncate := flags&unix.O_TRUNC != 0
	fd, err := h.open(r, flags&^unix.O_TRUNC)
	if err == unix.EPERM && r.Tree().ReadOnly { //nolint:errorlint // the kernel's own number
		fd, err = h.open(r, flags&^unix.O_NOATIME) // a file of another user
	}
	if err != nil || !truncate {
		return fd, err
	}
	// O_TRUNC alone needs no access by the guest, but the file must be opened for writing to truncate it.
	at := fd
	if flags&unix.O_ACCMODE == unix.O_RDONLY {
		if at, err = h.open(r, unix.O_WRONLY); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
		defer unix.Close(at)
	}
	if err = disarm(r.Tree(), at, by, kill); err == nil {
		err = unix.Ftruncate(at, 0)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openLock opens a file for locks, writable if possible: write locks need that.
func (h host) openLock(r *nodes.Ref, flags int) (int, error) {
	if r.Tree().ReadOnly {
		return h.open(r, unix.O_RDONLY)
	}
	fd, err := h.open(r, unix.O_RDWR)
	if err != nil {
		fd, err = h.open(r, flags&unix.O_ACCMODE)
	}
	return fd, err
}

// link gives the file of an O_PATH descriptor another name.
func (h host) link(fd, dir int, name string) error {
	return unix.Linkat(h.proc, strconv.Itoa(fd), dir, name, unix.AT_SYMLINK_FOLLOW)
}

// attributes opens a node for its attributes. Only regular files and directories have any, like user attributes on the
// host.
func (h host) attributes(r *nodes.Ref) (int, error) {
	fd, err := h.open(r, unix.O_RDONLY)
	if errors.Is(err, unix.EACCES) {
		fd, err = h.open(r, unix.O_WRONLY)
	}
	return fd, err
}

// hasDefaultACL reports whether new entries of dir get an access control list from it.
func (h host) hasDefaultACL(dir *nodes.Ref) bool {
	fd, err := h.attributes(dir)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	n, err := unix.Fgetxattr(fd, defaultACL, nil)
	return err == nil && n > 0
}

// masked returns the mode of a new entry of dir. A directory's default access control list replaces the umask.
func (h host) masked(dir *nodes.Ref, mode, umask uint32) uint32 {
	if umask == 0 || h.hasDefaultACL(dir) {
		return mode
	}
	return mode &^ umask
}

// chmod sets the mode of a file that is not a link.
func (h host) chmod(r *nodes.Ref, mode uint32) error {
	if r.Type() == unix.S_IFLNK {
		return unix.EOPNOTSUPP
	}
	return h.setMode(r, allowed(r, mode))
}

func (h host) setMode(r *nodes.Ref, mode uint32) error {
	return unix.Fchmodat(h.proc, strconv.Itoa(r.FD), mode, 0)
}

func (h host) utimes(r *nodes.Ref, in *fuse.SetAttrInCommon) error {
	times := []unix.Timespec{
		when(in.Valid, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, in.Atime, in.Atimensec),
		when(in.Valid, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, in.Mtime, in.Mtimensec),
	}
	if in.Atimensec >= 1e9 || in.Mtimensec >= 1e9 {
		return unix.EINVAL
	}
	return unix.UtimesNanoAt(h.proc, strconv.Itoa(r.FD), times, 0)
}
