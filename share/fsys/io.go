package fsys

import (
	"math"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Read implements [fuse.RawFileSystem]. It is short only at the file's end.
func (fs *FS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	h, err := fs.handles.hold(in.Fh, in.NodeId)
	if err != nil {
		return nil, status(err)
	}
	defer h.release()
	if in.Offset > math.MaxInt64 {
		return nil, fuse.EINVAL
	}
	n := 0
	for n < len(buf) {
		m, err := unix.Pread(h.fd, buf[n:], int64(in.Offset)+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil && n == 0 {
			return nil, status(err)
		}
		if m <= 0 {
			break
		}
		n += m
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

// Write implements [fuse.RawFileSystem].
func (fs *FS) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return fs.Writev(cancel, in, [][]byte{data})
}

// Writev implements [fuse.RawFileSystem].
func (fs *FS) Writev(_ <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	h, err := fs.handles.hold(in.Fh, in.NodeId)
	if err != nil {
		return 0, status(err)
	}
	defer h.release()
	if in.Offset > math.MaxInt64 {
		return 0, fuse.EINVAL
	}
	fd := h.fd
	if in.WriteFlags&fuse.WRITE_CACHE != 0 && h.flags&unix.O_APPEND != 0 {
		if fd, err = h.atOffset(fs.host); err != nil {
			return 0, status(err)
		}
	}
	if h.flags&unix.O_ACCMODE == unix.O_RDONLY {
		return 0, fuse.EBADF
	}
	if err := disarm(h.ref.Tree(), fd, &in.InHeader, in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0); err != nil {
		return 0, status(err)
	}
	for {
		n, err := unix.Pwritev(fd, data, int64(in.Offset))
		if err != unix.EINTR {
			return uint32(max(n, 0)), status(err)
		}
	}
}

// Lseek implements [fuse.RawFileSystem] for holes and data: the guest's kernel does the rest.
func (fs *FS) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	h, err := fs.handles.hold(in.Fh, in.NodeId)
	if err != nil {
		return status(err)
	}
	defer h.release()
	if in.Whence != unix.SEEK_DATA && in.Whence != unix.SEEK_HOLE || in.Offset > math.MaxInt64 {
		return fuse.EINVAL
	}
	if h.ref.Type() != unix.S_IFREG {
		return fuse.EINVAL
	}
	off, err := unix.Seek(h.fd, int64(in.Offset), int(in.Whence))
	out.Offset = uint64(max(off, 0))
	return status(err)
}

// Fallocate implements [fuse.RawFileSystem]. The request does not say whether to drop set-user-id bits: only root keeps
// them.
func (fs *FS) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	h, err := fs.handles.hold(in.Fh, in.NodeId)
	if err != nil {
		return status(err)
	}
	defer h.release()
	if in.Offset > math.MaxInt64 || in.Length > math.MaxInt64 {
		return fuse.EINVAL
	}
	if h.flags&unix.O_ACCMODE == unix.O_RDONLY {
		return fuse.EBADF
	}
	if err := disarm(h.ref.Tree(), h.fd, &in.InHeader, in.Uid != 0); err != nil {
		return status(err)
	}
	return status(unix.Fallocate(h.fd, in.Mode, int64(in.Offset), int64(in.Length)))
}

// maxCopy bounds the bytes that one request copies, so that it is short. The guest repeats the request for the rest.
const maxCopy = 16 << 20

// CopyFileRange implements [fuse.RawFileSystem].
func (fs *FS) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	from, err := fs.handles.hold(in.FhIn, in.NodeId)
	if err != nil {
		return 0, status(err)
	}
	defer from.release()
	to, err := fs.handles.hold(in.FhOut, in.NodeIdOut)
	if err != nil {
		return 0, status(err)
	}
	defer to.release()
	if in.OffIn > math.MaxInt64 || in.OffOut > math.MaxInt64 || in.Flags != 0 {
		return 0, fuse.EINVAL
	}
	if to.flags&unix.O_ACCMODE == unix.O_RDONLY {
		return 0, fuse.EBADF
	}
	if err := disarm(to.ref.Tree(), to.fd, &in.InHeader, in.Uid != 0); err != nil {
		return 0, status(err)
	}
	offIn, offOut := int64(in.OffIn), int64(in.OffOut)
	n, err := unix.CopyFileRange(from.fd, &offIn, to.fd, &offOut, int(min(in.Len, maxCopy)), 0)
	return uint32(max(n, 0)), status(err)
}

// Ioctl implements [fuse.RawFileSystem]: there are none.
func (*FS) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return fuse.Status(unix.ENOTTY)
}
