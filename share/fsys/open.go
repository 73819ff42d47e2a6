package fsys

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

// passed are the flags of open(2) that are passed on to the host beside the access mode. O_DIRECT is not: the guest's
// addresses would have to fit the host's disk.
const passed = unix.O_APPEND | unix.O_TRUNC | unix.O_SYNC | unix.O_NOATIME

// openFlags returns the host's flags for the guest's.
func openFlags(t *nodes.Tree, guest uint32) (int, error) {
	flags := int(guest) & (unix.O_ACCMODE | passed)
	if flags&unix.O_ACCMODE == unix.O_ACCMODE {
		return 0, unix.EINVAL
	}
	if t.ReadOnly {
		if flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0 {
			return 0, unix.EROFS
		}
		flags |= unix.O_NOATIME
	}
	return flags, nil
}

// Open implements [fuse.RawFileSystem].
func (fs *FS) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	r, err := fs.table.Hold(in.NodeId, false)
	if err != nil {
		return status(err)
	}
	if r.Type() != unix.S_IFREG {
		r.Release()
		return fuse.EPERM
	}
	return status(fs.openFile(r, &in.InHeader, in.Flags, in.Mode, out))
}

// openFile creates a handle of r, which it owns.
func (fs *FS) openFile(r *nodes.Ref, by *fuse.InHeader, guest, kill uint32, out *fuse.OpenOut) error {
	flags, err := openFlags(r.Tree(), guest)
	if err != nil {
		r.Release()
		return err
	}
	fd, err := fs.host.openData(r, by, flags, kill&fuse.OPEN_KILL_SUIDGID != 0)
	if err != nil {
		r.Release()
		return err
	}
	return fs.opened(fd, flags, r, out)
}

// opened creates a handle of an open file, and fills in out for the guest. It owns fd and r.
func (fs *FS) opened(fd, flags int, r *nodes.Ref, out *fuse.OpenOut) error {
	keep := unchanged(fd, r)
	h, err := fs.handles.add(fd, flags, r)
	if err != nil {
		return err
	}
	out.Fh = h.id
	directory := r.Type() == unix.S_IFDIR
	switch {
	case r.Tree().Cache == CacheNone && !directory:
		out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	case keep:
		out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	}
	// A cached listing has no attributes: the guest would request each one separately when they expire. A new listing
	// has them all.
	if directory && r.Tree().Cache == CacheAlways {
		out.OpenFlags |= fuse.FOPEN_CACHE_DIR
	}
	return nil
}

// settled is the age from which a file's times distinguish it from its next change: file systems count in ticks of the
// kernel.
const settled = 100 * time.Millisecond

// unchanged reports whether the guest may keep its cached data of the file.
func unchanged(fd int, r *nodes.Ref) bool {
	switch r.Tree().Cache {
	case CacheAlways:
		return true
	case CacheNone:
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || time.Since(time.Unix(st.Ctim.Unix())) < settled {
		return r.Seen(0)
	}
	return r.Seen(fingerprint(&st))
}

func fingerprint(st *unix.Stat_t) uint64 {
	mark := uint64(1469598103934665603)
	for _, v := range []int64{st.Mtim.Nano(), st.Ctim.Nano(), st.Size} {
		mark = (mark ^ uint64(v)) * 0x9e3779b97f4a7c15
		mark ^= mark >> 29
	}
	return max(mark, 1)
}

// Flush implements [fuse.RawFileSystem]: a process has closed the file, which ends its locks.
func (fs *FS) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	h, err := fs.handles.hold(in.Fh, in.NodeId)
	if err != nil {
		return status(err)
	}
	defer h.release()
	fs.locks.Drop(in.NodeId, in.LockOwner)
	return fuse.OK
}

// Release implements [fuse.RawFileSystem].
func (fs *FS) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	fs.handles.remove(in.Fh, in.NodeId)
	fs.locks.Closed(in.NodeId, in.Fh)
}

// Fsync implements [fuse.RawFileSystem].
func (fs *FS) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	h, err := fs.handles.hold(in.Fh, in.NodeId)
	if err != nil {
		return status(err)
	}
	defer h.release()
	const dataOnly = 1
	if in.FsyncFlags&dataOnly != 0 {
		return status(unix.Fdatasync(h.fd))
	}
	return status(unix.Fsync(h.fd))
}

// FsyncDir implements [fuse.RawFileSystem].
func (fs *FS) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return fs.Fsync(cancel, in)
}
