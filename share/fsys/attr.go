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
		fs.rootAttr(&out.Attr)
		return fuse.OK
	}
	r, err := fs.hold(in.NodeId, false)
	if err != nil {
		return status(err)
	}
	defer r.Release()
	return status(fs.attrOut(r, out))
}

func (fs *FS) attrOut(r *nodes.Ref, out *fuse.AttrOut) error {
	var st unix.Statx_t
	if err := nodes.Stat(r.FD, &st); err != nil {
		return err
	}
	fs.attr(&st, &out.Attr)
	out.SetTimeout(timeout(r.Tree().Cache))
	return nil
}

// attr fills in the attributes that the guest sees.
func (fs *FS) attr(st *unix.Statx_t, out *fuse.Attr) {
	*out = fuse.Attr{
		Ino:       fs.table.Ino(st),
		Size:      st.Size,
		Blocks:    st.Blocks,
		Atime:     uint64(st.Atime.Sec),
		Mtime:     uint64(st.Mtime.Sec),
		Ctime:     uint64(st.Ctime.Sec),
		Atimensec: st.Atime.Nsec,
		Mtimensec: st.Mtime.Nsec,
		Ctimensec: st.Ctime.Nsec,
		Mode:      uint32(st.Mode),
		Nlink:     st.Nlink,
		Owner:     fs.shown(st.Uid, st.Gid),
		Rdev:      uint32(unix.Mkdev(st.Rdev_major, st.Rdev_minor)),
		Blksize:   st.Blksize,
	}
}

// shown returns the owner that the guest sees.
func (fs *FS) shown(uid, gid uint32) fuse.Owner {
	if fs.opts.Owner == nil {
		return fuse.Owner{Uid: uid, Gid: gid}
	}
	const nobody = 65534
	o := fuse.Owner{Uid: nobody, Gid: nobody}
	if uid == fs.uid {
		o.Uid = fs.opts.Owner.UID
	}
	if gid == fs.gid {
		o.Gid = fs.opts.Owner.GID
	}
	return o
}

// entry fills in the guest's entry for a node.
func (fs *FS) entry(r *nodes.Ref, st *unix.Statx_t, out *fuse.EntryOut) {
	fs.listed(r.ID(), r.Tree().Cache, st, out)
}

func (fs *FS) listed(id uint64, c Cache, st *unix.Statx_t, out *fuse.EntryOut) {
	out.NodeId, out.Generation = id, 1
	fs.attr(st, &out.Attr)
	out.SetEntryTimeout(timeout(c))
	out.SetAttrTimeout(timeout(c))
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
	r, err := fs.hold(in.NodeId, false)
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
