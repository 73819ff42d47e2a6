package fsys

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

// Lookup implements [fuse.RawFileSystem].
func (fs *FS) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if err := component(name); err != nil {
		return status(err)
	}
	if in.NodeId == nodes.Root {
		return status(fs.lookupTree(name, out))
	}
	dir, err := fs.table.Hold(in.NodeId, false)
	if err != nil {
		return status(err)
	}
	defer dir.Release()
	r, err := fs.enter(dir, name, out)
	if err == nil {
		r.Release()
		return fuse.OK
	}
	if t := timeout(dir.Tree().Cache); t > 0 && errors.Is(err, unix.ENOENT) {
		// Node 0 means that there is none, and how long that is valid.
		*out = fuse.EntryOut{}
		out.SetEntryTimeout(t)
		return fuse.OK
	}
	return status(err)
}

func (fs *FS) lookupTree(name string, out *fuse.EntryOut) error {
	r, err := fs.table.Tree(name)
	if err != nil {
		return err
	}
	defer r.Release()
	var st unix.Statx_t
	if err := nodes.Stat(r.FD, &st); err != nil {
		return err
	}
	r.LookedUp()
	fs.view.entry(r, &st, out)
	return nil
}

// place returns the directory in which the entry name will be created, removed or replaced.
func (fs *FS) place(id uint64, name string) (*nodes.Ref, error) {
	if err := component(name); err != nil {
		return nil, err
	}
	r, err := fs.table.Hold(id, true)
	if err == nil && r.Type() != unix.S_IFDIR {
		r.Release()
		return nil, unix.ENOTDIR
	}
	return r, err
}

// enter returns the node of dir's entry name, held, and fills in out for the guest.
func (fs *FS) enter(dir *nodes.Ref, name string, out *fuse.EntryOut) (*nodes.Ref, error) {
	fd, err := nodes.OpenAt(dir.FD, name)
	if err != nil {
		return nil, err
	}
	return fs.enterFD(dir, name, dir.Tree(), fd, out)
}

// enterFD is like enter for the descriptor of a file, which it owns; dir is nil for a file without a name.
func (fs *FS) enterFD(dir *nodes.Ref, name string, tree *nodes.Tree, fd int, out *fuse.EntryOut) (*nodes.Ref, error) {
	var st unix.Statx_t
	if err := nodes.Stat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	r, err := fs.table.Enter(dir, name, tree, fd, &st)
	if err != nil {
		return nil, err
	}
	fs.view.entry(r, &st, out)
	return r, nil
}

// Forget implements [fuse.RawFileSystem].
func (fs *FS) Forget(id, n uint64) { fs.table.Forget(id, n) }

// rootAttr fills in the attributes of the synthetic root.
func rootAttr(out *fuse.Attr) {
	*out = fuse.Attr{Ino: nodes.RootIno, Mode: unix.S_IFDIR | 0o555, Nlink: 2, Blksize: 4096}
}

// Readlink implements [fuse.RawFileSystem].
func (fs *FS) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	r, err := fs.table.Hold(in.NodeId, false)
	if err != nil {
		return nil, status(err)
	}
	defer r.Release()
	if r.Type() != unix.S_IFLNK {
		return nil, fuse.EINVAL
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(r.FD, "", buf)
	if err != nil {
		return nil, status(err)
	}
	return buf[:n], fuse.OK
}

// String implements [fuse.RawFileSystem].
func (*FS) String() string { return "bulkhead" }

// SetDebug implements [fuse.RawFileSystem].
func (*FS) SetDebug(bool) {}

// Init implements [fuse.RawFileSystem].
func (*FS) Init(*fuse.Server) {}

// OnUnmount implements [fuse.RawFileSystem].
func (*FS) OnUnmount() {}
