package fsys

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share/fsys/nodes"
)

// position is the position of a directory's descriptor. It is locked while entries are read.
type position struct {
	mu sync.Mutex
	at int64
}

// OpenDir implements [fuse.RawFileSystem].
func (fs *FS) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.NodeId == nodes.Root {
		return fuse.OK // no handle is needed
	}
	r, err := fs.table.Hold(in.NodeId, false)
	if err != nil {
		return status(err)
	}
	if r.Type() != unix.S_IFDIR {
		r.Release()
		return fuse.ENOTDIR
	}
	return status(fs.openFile(r, &in.InHeader, unix.O_RDONLY|in.Flags&unix.O_NOATIME, 0, out))
}

// ReadDir implements [fuse.RawFileSystem].
func (fs *FS) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return fs.readDir(in, out, false)
}

// ReadDirPlus implements [fuse.RawFileSystem].
func (fs *FS) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return fs.readDir(in, out, true)
}

func (fs *FS) readDir(in *fuse.ReadIn, out *fuse.DirEntryList, plus bool) fuse.Status {
	if in.NodeId == nodes.Root {
		fs.readRoot(in.Offset, out, plus)
		return fuse.OK
	}
	h, err := fs.handles.hold(in.Fh, in.NodeId)
	if err != nil {
		return status(err)
	}
	defer h.release()
	if h.ref.Type() != unix.S_IFDIR {
		return fuse.ENOTDIR
	}
	if in.Offset > math.MaxInt64 {
		return fuse.EINVAL
	}
	var st unix.Stat_t
	if err := unix.Fstat(h.fd, &st); err != nil {
		return status(err)
	}
	size := int(min(in.Size, mostRead))
	if plus {
		size /= 4 // an entry with attributes is larger than the host's
	}
	h.dir.mu.Lock()
	defer h.dir.mu.Unlock()
	return status(h.list(int64(in.Offset), size, out, func(e *fuse.DirEntry) bool {
		host := e.Ino
		e.Ino = fs.table.InoOf(st.Dev, host)
		if !plus {
			return out.AddDirEntry(*e)
		}
		entry := out.AddDirLookupEntry(*e)
		if entry != nil && e.Name != "." && e.Name != ".." {
			fs.listEntry(h.ref, e.Name, out, entry)
		}
		return entry != nil
	}))
}

// listEntry adds a node and attributes to an entry, if it can. With node 0 the guest looks the entry up later.
func (fs *FS) listEntry(dir *nodes.Ref, name string, out *fuse.DirEntryList, entry *fuse.EntryOut) {
	var st unix.Statx_t
	if nodes.StatAt(dir.FD, name, &st) != nil {
		return
	}
	id, err := fs.table.List(dir, name, &st)
	if err != nil {
		return
	}
	fs.view.listed(id, dir.Tree().Cache, &st, entry)
	out.FixMode(uint32(st.Mode))
}

const (
	// leastRead is a size, in bytes, that holds any entry.
	leastRead = 1 << 10
	// mostRead is the largest read, in bytes.
	mostRead = 32 << 10
)

var readBuffers = sync.Pool{New: func() any { return new([mostRead]byte) }}

// list passes the entries from offset on to add, until add returns false. The guest gets the host's own offsets, so
// entries that do not fit are read again.
func (h *handle) list(offset int64, size int, out *fuse.DirEntryList, add func(*fuse.DirEntry) bool) error {
	all := readBuffers.Get().(*[mostRead]byte)
	defer readBuffers.Put(all)
	buf := all[:min(max(size, leastRead), mostRead)]
	for {
		if h.dir.at != offset {
			if _, err := unix.Seek(h.fd, offset, unix.SEEK_SET); err != nil {
				return err
			}
			h.dir.at = offset
		}
		n, err := unix.Getdents(h.fd, buf)
		if err != nil || n == 0 {
			if len(out.Bytes()) > 0 {
				return nil
			}
			return err
		}
		for rest := buf[:n]; len(rest) > 0; {
			var e fuse.DirEntry
			size := parse(rest, &e)
			h.dir.at = int64(e.Off)
			if !add(&e) {
				h.dir.at = -1 // the descriptor is beyond this entry
				return nil
			}
			offset, rest = int64(e.Off), rest[size:]
		}
	}
}

// parse parses the first of the entries from getdents64(2), and returns its length.
func parse(b []byte, e *fuse.DirEntry) int {
	const header = 19
	size := int(binary.NativeEndian.Uint16(b[16:]))
	name := b[header:size]
	for i, c := range name {
		if c == 0 {
			name = name[:i]
			break
		}
	}
	*e = fuse.DirEntry{
		Ino:  binary.NativeEndian.Uint64(b),
		Off:  binary.NativeEndian.Uint64(b[8:]),
		Mode: uint32(b[18]) << 12,
		Name: string(name),
	}
	return size
}

// readRoot lists the synthetic root. A tree's offset is its number.
func (fs *FS) readRoot(offset uint64, out *fuse.DirEntryList, plus bool) {
	for _, tree := range fs.table.Trees(offset) {
		e := fuse.DirEntry{Name: tree.Name, Off: tree.Number(), Ino: nodes.RootIno + tree.Number()}
		if plus && out.AddDirLookupEntry(e) == nil || !plus && !out.AddDirEntry(e) {
			return
		}
	}
}

// ReleaseDir implements [fuse.RawFileSystem].
func (fs *FS) ReleaseDir(in *fuse.ReleaseIn) { fs.handles.remove(in.Fh, in.NodeId) }
