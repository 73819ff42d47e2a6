package fsys

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

const (
	// brief is how long the guest may cache names and attributes with CacheAuto. Including the way to the guest, it
	// sees changes on the host within a second.
	brief = 900 * time.Millisecond
	// long is the same for CacheAlways.
	long = 24 * time.Hour
)

// timeout returns how long the guest may cache names and attributes.
func timeout(c Cache) time.Duration {
	switch c {
	case CacheAlways:
		return long
	case CacheNone:
		return 0
	default:
		return brief
	}
}

// GetAttr implements [fuse.RawFileSystem].
func (fs *FS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if in.NodeId == nodes.Root {
		rootAttr(&out.Attr)
		return fuse.OK
	}
	r, err := fs.table.Hold(in.NodeId, false)
	if err != nil {
		return status(err)
	}
	defer r.Release()
	return status(fs.view.attrOut(r, out))
}

// Statx implements [fuse.RawFileSystem]: guests work without it.
func (*FS) Statx(<-chan struct{}, *fuse.StatxIn, *fuse.StatxOut) fuse.Status { return fuse.ENOSYS }

// Access implements [fuse.RawFileSystem]: the guest's kernel checks modes itself.
func (*FS) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.ENOSYS }

// StatFs implements [fuse.RawFileSystem].
func (fs *FS) StatFs(_ <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	if in.NodeId == nodes.Root {
		out.Bsize, out.Frsize, out.NameLen = 4096, 4096, unix.NAME_MAX
		return fuse.OK
	}
	r, err := fs.table.Hold(in.NodeId, false)
	if err != nil {
		return status(err)
	}
	defer r.Release()
	var st unix.Statfs_t
	if err := unix.Fstatfs(r.FD, &st); err != nil {
		return status(err)
	}
	*out = fuse.StatfsOut{
		Blocks: st.Blocks, Bfree: st.Bfree, Bavail: st.Bavail, Files: st.Files, Ffree: st.Ffree,
		Bsize: uint32(st.Bsize), Frsize: uint32(st.Frsize), NameLen: uint32(min(st.Namelen, unix.NAME_MAX)),
	}
	return fuse.OK
}
