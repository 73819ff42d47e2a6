package fsys

import (
	"math"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/locks"
)

// locking answers the requests for locks.
type locking struct {
	host    host
	handles *handles
	locks   *locks.Locks
}

// GetLk implements [fuse.RawFileSystem].
func (s locking) GetLk(_ <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	h, err := s.handles.hold(in.Fh, in.NodeId)
	if err != nil {
		return status(err)
	}
	defer h.release()
	l, err := rangeOf(&in.Lk)
	if err != nil {
		return status(err)
	}
	if err := s.locks.Get(s.owner(in, h), &l); err != nil {
		return status(err)
	}
	out.Lk = fuse.FileLock{Typ: uint32(l.Type)}
	if l.Type != unix.F_UNLCK {
		out.Lk.Start, out.Lk.End = uint64(l.Start), math.MaxInt64
		if l.Len > 0 {
			out.Lk.End = uint64(l.Start + l.Len - 1)
		}
	}
	return fuse.OK
}

// SetLk implements [fuse.RawFileSystem].
func (s locking) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return s.setLk(cancel, in, false)
}

// SetLkw implements [fuse.RawFileSystem].
func (s locking) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return s.setLk(cancel, in, true)
}

func (s locking) setLk(cancel <-chan struct{}, in *fuse.LkIn, wait bool) fuse.Status {
	h, err := s.handles.hold(in.Fh, in.NodeId)
	if err != nil {
		return status(err)
	}
	defer h.release()
	w := locks.Wait{Cancel: cancel, Blocks: wait}
	if in.LkFlags&fuse.FUSE_LK_FLOCK != 0 {
		return status(s.locks.Flock(h.fd, int(in.Lk.Typ), w))
	}
	l, err := rangeOf(&in.Lk)
	if err != nil {
		return status(err)
	}
	return status(s.locks.Set(s.owner(in, h), l, w))
}

// owner returns the owner of a request's locks.
func (s locking) owner(in *fuse.LkIn, h *handle) locks.Owner {
	return locks.Owner{Node: in.NodeId, ID: in.Owner, Handle: in.Fh, Open: func() (int, error) {
		if h.ref.Type() != unix.S_IFREG {
			return -1, unix.EBADF
		}
		return s.host.openLock(h.ref, h.flags)
	}}
}

// rangeOf returns the lock of a request.
func rangeOf(in *fuse.FileLock) (unix.Flock_t, error) {
	if in.Start > math.MaxInt64 || in.End > math.MaxInt64 || in.End < in.Start || in.Typ > unix.F_UNLCK {
		return unix.Flock_t{}, unix.EINVAL
	}
	l := unix.Flock_t{Type: int16(in.Typ), Whence: unix.SEEK_SET, Start: int64(in.Start)}
	if in.End < math.MaxInt64 {
		l.Len = int64(in.End-in.Start) + 1
	}
	return l, nil
}
