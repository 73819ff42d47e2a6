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

// reopen opens the file of a descriptor again. It is the same file, whatever its names are now. It must be a regular
// file or a directory: opening other types has side effects.
func (fs *FS) reopen(fd, flags int) (int, error) {
	for {
		got, err := unix.Openat(fs.proc, strconv.Itoa(fd), flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != unix.EINTR {
			return got, err
		}
	}
}

// open opens a node's file, if it is a regular file or a directory.
func (fs *FS) open(r *nodes.Ref, flags int) (int, error) {
	if t := r.Type(); t != unix.S_IFREG && t != unix.S_IFDIR {
		return -1, unix.EPERM
	}
	return fs.reopen(r.FD, flags)
}

// hold returns the node with that id, held. change says that it will be changed. For the synthetic root it returns
// EROFS with change, and EINVAL otherwise.
func (fs *FS) hold(id uint64, change bool) (*nodes.Ref, error) {
	if id == nodes.Root {
		if change {
			return nil, unix.EROFS
		}
		return nil, unix.EINVAL
	}
	r, err := fs.table.Hold(id)
	if err == nil && change && r.Tree().ReadOnly {
		r.Release()
		return nil, unix.EROFS
	}
	return r, err
}

// place returns the directory in which the entry name will be created, removed or replaced.
func (fs *FS) place(id uint64, name string) (*nodes.Ref, error) {
	if err := component(name); err != nil {
		return nil, err
	}
	r, err := fs.hold(id, true)
	if err == nil && r.Type() != unix.S_IFDIR {
		r.Release()
		return nil, unix.ENOTDIR
	}
	return r, err
}
