package fsys

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

// Mknod implements [fuse.RawFileSystem]: regular files, FIFOs and sockets.
func (fs *FS) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return fs.createEntry(&in.InHeader, name, out, func(dir *nodes.Ref) error {
		switch in.Mode & unix.S_IFMT {
		case 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
		default:
			return unix.EPERM
		}
		mode := in.Mode&unix.S_IFMT | modeOf(dir.Tree(), fs.host.masked(dir, in.Mode, in.Umask))
		return unix.Mknodat(dir.FD, name, mode, 0)
	})
}

// Mkdir implements [fuse.RawFileSystem].
func (fs *FS) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return fs.createEntry(&in.InHeader, name, out, func(dir *nodes.Ref) error {
		return unix.Mkdirat(dir.FD, name, fs.host.masked(dir, in.Mode, in.Umask)&0o7777)
	})
}

// Symlink implements [fuse.RawFileSystem]. The target may be anything: only the guest follows it.
func (fs *FS) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return fs.createEntry(in, name, out, func(dir *nodes.Ref) error {
		return unix.Symlinkat(target, dir.FD, name)
	})
}

// createEntry creates an entry and returns it to the guest.
func (fs *FS) createEntry(in *fuse.InHeader, name string, out *fuse.EntryOut, do func(dir *nodes.Ref) error) fuse.Status {
	dir, err := fs.place(in.NodeId, name)
	if err != nil {
		return status(err)
	}
	defer dir.Release()
	if err := fs.view.as(in, func() error { return do(dir) }); err != nil {
		return status(err)
	}
	r, err := fs.enter(dir, name, out)
	if err != nil {
		return status(err)
	}
	r.Release()
	return fuse.OK
}

// Link implements [fuse.RawFileSystem].
func (fs *FS) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	dir, err := fs.place(in.NodeId, name)
	if err != nil {
		return status(err)
	}
	defer dir.Release()
	old, err := fs.table.Hold(in.Oldnodeid, true)
	if err != nil {
		return status(err)
	}
	defer old.Release()
	if old.Tree() != dir.Tree() {
		return fuse.EXDEV
	}
	if old.Type() == unix.S_IFDIR {
		return fuse.EPERM
	}
	if err := fs.host.link(old.FD, dir.FD, name); err != nil {
		return status(err)
	}
	r, err := fs.enter(dir, name, out)
	if err != nil {
		return status(err)
	}
	r.Release()
	return fuse.OK
}

// createTries bounds how often other programs may remove and create a file again while it is being opened.
const createTries = 8

// Create implements [fuse.RawFileSystem].
func (fs *FS) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	dir, err := fs.place(in.NodeId, name)
	if err != nil {
		return status(err)
	}
	defer dir.Release()
	flags, err := openFlags(dir.Tree(), in.Flags)
	if err != nil {
		return status(err)
	}
	// Only a new file is opened by its name. An existing one is looked up first, because it may be a FIFO.
	for range createTries {
		err = fs.create(dir, name, flags, in, out)
		if !errors.Is(err, unix.EEXIST) || in.Flags&unix.O_EXCL != 0 {
			break
		}
		var r *nodes.Ref
		r, err = fs.enter(dir, name, &out.EntryOut)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = fs.openEntered(r, in, out)
		}
		break
	}
	return status(err)
}

// openEntered opens a file that existed already.
func (fs *FS) openEntered(r *nodes.Ref, in *fuse.CreateIn, out *fuse.CreateOut) error {
	id, kind := r.ID(), r.Type()
	var err error
	switch kind {
	case unix.S_IFREG:
		err = fs.openFile(r, &in.InHeader, in.Flags, in.OpenFlags, &out.OpenOut)
	case unix.S_IFDIR:
		err = unix.EISDIR
	case unix.S_IFLNK:
		err = unix.ELOOP
	default:
		err = unix.EPERM
	}
	if err != nil {
		if kind != unix.S_IFREG {
			r.Release()
		}
		fs.table.Forget(id, 1)
	}
	return err
}

// create creates a file that must not exist.
func (fs *FS) create(dir *nodes.Ref, name string, flags int, in *fuse.CreateIn, out *fuse.CreateOut) error {
	mode := modeOf(dir.Tree(), fs.host.masked(dir, in.Mode, in.Umask))
	fd := -1
	err := fs.view.as(&in.InHeader, func() (err error) {
		fd, err = nodes.Openat2(dir.FD, name, flags&^unix.O_TRUNC|unix.O_CREAT|unix.O_EXCL|unix.O_NONBLOCK, mode)
		return err
	})
	if err != nil {
		return err
	}
	return fs.created(dir, name, dir.Tree(), fd, flags, out)
}

// created creates the node and the handle of a new file.
func (fs *FS) created(dir *nodes.Ref, name string, tree *nodes.Tree, fd, flags int, out *fuse.CreateOut) error {
	path, err := fs.host.reopen(fd, unix.O_PATH)
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	r, err := fs.enterFD(dir, name, tree, path, &out.EntryOut)
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	id := r.ID()
	if err := fs.opened(fd, flags, r, &out.OpenOut); err != nil {
		fs.table.Forget(id, 1)
		return err
	}
	return nil
}

// Tmpfile implements [fuse.RawFileSystem].
func (fs *FS) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	dir, err := fs.place(in.NodeId, "tmpfile")
	if err != nil {
		return status(err)
	}
	defer dir.Release()
	flags, err := openFlags(dir.Tree(), in.Flags)
	if err != nil {
		return status(err)
	}
	mode := modeOf(dir.Tree(), fs.host.masked(dir, in.Mode, in.Umask))
	fd := -1
	err = fs.view.as(&in.InHeader, func() (err error) {
		fd, err = nodes.Openat2(dir.FD, ".", flags&^unix.O_TRUNC|int(in.Flags)&unix.O_EXCL|unix.O_TMPFILE, mode)
		return err
	})
	if err != nil {
		return status(err)
	}
	return status(fs.created(nil, "", dir.Tree(), fd, flags, out))
}
