package fsys

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

// Unlink implements [fuse.RawFileSystem].
func (fs *FS) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return fs.remove(in.NodeId, name, 0)
}

// Rmdir implements [fuse.RawFileSystem].
func (fs *FS) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return fs.remove(in.NodeId, name, unix.AT_REMOVEDIR)
}

func (fs *FS) remove(id uint64, name string, flags int) fuse.Status {
	dir, err := fs.place(id, name)
	if err != nil {
		return status(err)
	}
	defer dir.Release()
	victim := fs.table.Known(dir, name)
	err = unix.Unlinkat(dir.FD, name, flags)
	nameless(victim, err)
	return status(err)
}

// nameless pins a file after its name was removed, unless that failed, and releases it.
func nameless(victim *nodes.Ref, err error) {
	if victim == nil {
		return
	}
	if err == nil {
		victim.Pin()
	}
	victim.Release()
}

// Rename implements [fuse.RawFileSystem].
func (fs *FS) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	if in.Flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return fuse.EINVAL
	}
	from, err := fs.place(in.NodeId, oldName)
	if err != nil {
		return status(err)
	}
	defer from.Release()
	to, err := fs.place(in.Newdir, newName)
	if err != nil {
		return status(err)
	}
	defer to.Release()
	if from.Tree() != to.Tree() {
		return fuse.EXDEV
	}
	moved := fs.table.Known(from, oldName)
	other := fs.table.Known(to, newName)
	same := moved != nil && other != nil && moved.ID() == other.ID()
	err = unix.Renameat2(from.FD, oldName, to.FD, newName, uint(in.Flags))
	if moved != nil {
		if err == nil && !same {
			moved.Named(to, newName)
		}
		moved.Release()
	}
	if other == nil {
		return status(err)
	}
	switch {
	case same:
		other.Release()
	case in.Flags&unix.RENAME_EXCHANGE != 0:
		if err == nil {
			other.Named(from, oldName)
		}
		other.Release()
	default:
		nameless(other, err)
	}
	return status(err)
}
