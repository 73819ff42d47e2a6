package fsys

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/creds"
	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

// view is the guest's view of the host's files: their owners, numbers and attributes.
type view struct {
	owner    *Owner // of the process's own files; nil keeps all owners
	uid, gid uint32 // of the process
	table    *nodes.Table
}

// as runs do with the caller's user and group, which then own the new file.
func (v view) as(in *fuse.InHeader, do func() error) error {
	if v.owner != nil {
		return do()
	}
	return creds.As(in.Uid, in.Gid, do)
}

func (v view) attrOut(r *nodes.Ref, out *fuse.AttrOut) error {
	var st unix.Statx_t
	if err := nodes.Stat(r.FD, &st); err != nil {
		return err
	}
	v.attr(&st, &out.Attr)
	out.SetTimeout(timeout(r.Tree().Cache))
	return nil
}

// attr fills in the attributes that the guest sees.
func (v view) attr(st *unix.Statx_t, out *fuse.Attr) {
	*out = fuse.Attr{
		Ino:       v.table.Ino(st),
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
		Owner:     v.shown(st.Uid, st.Gid),
		Rdev:      uint32(unix.Mkdev(st.Rdev_major, st.Rdev_minor)),
		Blksize:   st.Blksize,
	}
}

// shown returns the owner that the guest sees.
func (v view) shown(uid, gid uint32) fuse.Owner {
	if v.owner == nil {
		return fuse.Owner{Uid: uid, Gid: gid}
	}
	const nobody = 65534
	o := fuse.Owner{Uid: nobody, Gid: nobody}
	if uid == v.uid {
		o.Uid = v.owner.UID
	}
	if gid == v.gid {
		o.Gid = v.owner.GID
	}
	return o
}

// entry fills in the guest's entry for a node.
func (v view) entry(r *nodes.Ref, st *unix.Statx_t, out *fuse.EntryOut) {
	v.listed(r.ID(), r.Tree().Cache, st, out)
}

func (v view) listed(id uint64, c Cache, st *unix.Statx_t, out *fuse.EntryOut) {
	out.NodeId, out.Generation = id, 1
	v.attr(st, &out.Attr)
	out.SetEntryTimeout(timeout(c))
	out.SetAttrTimeout(timeout(c))
}
