package fsys

import (
	"math"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

// SetAttr implements [fuse.RawFileSystem].
func (fs *FS) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	r, err := fs.table.Hold(in.NodeId, true)
	if err != nil {
		return status(err)
	}
	defer r.Release()
	// The owner comes before the mode, since a change of owner drops bits of it.
	if in.Valid&(fuse.FATTR_UID|fuse.FATTR_GID) != 0 {
		err = fs.chown(r, &in.SetAttrInCommon)
	}
	if err == nil && in.Valid&fuse.FATTR_MODE != 0 {
		err = fs.host.chmod(r, in.Mode)
	}
	if err == nil && in.Valid&fuse.FATTR_SIZE != 0 {
		err = fs.truncate(r, &in.SetAttrInCommon)
	}
	if err == nil && in.Valid&(fuse.FATTR_ATIME|fuse.FATTR_MTIME) != 0 {
		err = fs.host.utimes(r, &in.SetAttrInCommon)
	}
	if err == nil {
		err = fs.view.attrOut(r, out)
	}
	return status(err)
}

func (fs *FS) chown(r *nodes.Ref, in *fuse.SetAttrInCommon) error {
	uid, gid := -1, -1
	if id, ok := in.GetUID(); ok {
		uid = int(id)
	}
	if id, ok := in.GetGID(); ok {
		gid = int(id)
	}
	if o := fs.view.owner; o != nil {
		var st unix.Statx_t
		if err := nodes.Stat(r.FD, &st); err != nil {
			return err
		}
		now := fs.view.shown(st.Uid, st.Gid)
		if uid >= 0 && (uint32(uid) != now.Uid || st.Uid != fs.view.uid) || gid >= 0 && (uint32(gid) != now.Gid || st.Gid != fs.view.gid) {
			return unix.EPERM
		}
		uid, gid = -1, -1 // unchanged; the kernel still drops the bits that a change of owner drops
	}
	kept, err := keptGroupBit(r, &in.InHeader)
	if err == nil {
		err = unix.Fchownat(r.FD, "", uid, gid, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil && kept != 0 {
		err = fs.host.setMode(r, kept&0o7777&^(unix.S_ISUID|unix.S_ISGID))
	}
	return err
}

// keptGroupBit returns the mode of a file if a change of owner would keep its set-group-id bit: the server may keep it,
// but the caller may not. Otherwise it returns 0. The kernel drops the bit of files that their group can execute.
func keptGroupBit(r *nodes.Ref, by *fuse.InHeader) (mode uint32, err error) {
	if by.Uid == 0 || r.Type() != unix.S_IFREG {
		return 0, nil
	}
	var st unix.Statx_t
	if err := nodes.Stat(r.FD, &st); err != nil || by.Gid == st.Gid || st.Mode&(unix.S_ISGID|unix.S_IXGRP) != unix.S_ISGID {
		return 0, err
	}
	return uint32(st.Mode), nil
}

// allowed returns a mode that the guest may set on a file of that type.
func allowed(r *nodes.Ref, mode uint32) uint32 {
	mode &= 0o7777
	if r.Type() != unix.S_IFDIR {
		mode = modeOf(r.Tree(), mode)
	}
	return mode
}

// modeOf returns the allowed mode of a new file in a tree, or of one that is not a directory.
func modeOf(t *nodes.Tree, mode uint32) uint32 {
	if !t.SetID {
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	return mode & 0o7777
}

func (fs *FS) truncate(r *nodes.Ref, in *fuse.SetAttrInCommon) error {
	if in.Size > math.MaxInt64 {
		return unix.EINVAL
	}
	if fh, ok := in.GetFh(); ok {
		h, err := fs.handles.hold(fh, r.ID())
		if err != nil {
			return err
		}
		defer h.release()
		return resize(r, h.fd, in)
	}
	if r.Type() != unix.S_IFREG {
		return unix.EINVAL
	}
	fd, err := fs.host.open(r, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return resize(r, fd, in)
}

func resize(r *nodes.Ref, fd int, in *fuse.SetAttrInCommon) error {
	if err := disarm(r.Tree(), fd, &in.InHeader, in.Valid&fuse.FATTR_KILL_SUIDGID != 0); err != nil {
		return err
	}
	return unix.Ftruncate(fd, int64(in.Size))
}

// when returns one time for utimensat(2).
func when(valid, set, now uint32, sec uint64, nsec uint32) unix.Timespec {
	switch {
	case valid&set == 0:
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	case valid&now != 0:
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	}
	return unix.Timespec{Sec: int64(sec), Nsec: int64(nsec)}
}

// disarm drops the set-user-id and set-group-id bits of a regular file before a write, if the tree allows none or the
// guest's kernel asks for it. If the group cannot execute the file, its members keep the group bit.
func disarm(t *nodes.Tree, fd int, by *fuse.InHeader, asked bool) error {
	if t.SetID && !asked {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	bits := uint32(unix.S_ISUID)
	if st.Mode&unix.S_IXGRP != 0 || by.Gid != st.Gid {
		bits |= unix.S_ISGID
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&bits == 0 {
		return nil
	}
	return unix.Fchmod(fd, st.Mode&0o7777&^bits)
}
