// Package erofs writes EROFS disks, the read-only file system that every Linux kernel since 5.4 can mount. It writes
// content to its final place as it arrives, so that layers can be converted while they are downloaded. Metadata follows
// at the end. It supports the features that container images need: hard links, holes, extended attributes, devices,
// 64-bit times.
package erofs

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Writer writes one disk: Store the content of files, build a tree of Inodes, Finish. It is not safe for concurrent
// use.
type Writer struct {
	f       *os.File
	limit   int64
	next    int64 // the offset of the next content
	spooled int64 // bytes of small files, which end at limit
	synced  int64
	data    []*Data
	buf     []byte
	inodes  uint32
	chunked bool
}

// NewWriter writes at most limit bytes to f, an empty file. Small files are kept at that end of f until Finish, so that
// one bound covers all writes. The caller keeps f.
func NewWriter(f *os.File, limit int64) *Writer {
	return &Writer{f: f, limit: limit, next: BlockSize, buf: make([]byte, 16*chunkSize)}
}

// Flush asks the kernel to start writing back the content stored since the last call, so that a sync at the end is
// short.
func (w *Writer) Flush() {
	// Only a hint: the sync reports errors.
	_ = unix.SyncFileRange(int(w.f.Fd()), w.synced, w.next-w.synced, unix.SYNC_FILE_RANGE_WRITE)
	w.synced = w.next
}

// Finish writes the tree under root and returns the disk's size in bytes, a multiple of BlockSize. It drops content
// without an Inode. It does not sync. Afterwards the Writer is unusable.
func (w *Writer) Finish(root *Inode) (int64, error) {
	order, end, err := w.plan(root)
	if err != nil {
		return 0, err
	}
	meta := align(w.next, BlockSize)
	size := meta + end
	if size+w.spooled > w.limit { // it would overwrite the small files
		return 0, w.tooLarge()
	}
	if err := w.writeMeta(order, meta); err != nil {
		return 0, fmt.Errorf("write metadata: %w", err)
	}
	if err := w.dropUnused(); err != nil {
		return 0, err
	}
	if err := w.f.Truncate(size); err != nil {
		return 0, err
	}
	_, err = w.f.WriteAt(w.super(root, meta, size), superOffset)
	return size, err
}

func (w *Writer) super(root *Inode, meta, size int64) []byte {
	b := make([]byte, superSize)
	le := binary.LittleEndian
	le.PutUint32(b[0:], superMagic)
	le.PutUint32(b[8:], compatMtime)
	b[12] = blockBits
	le.PutUint16(b[14:], uint16(root.pos/slotSize))
	le.PutUint64(b[16:], uint64(w.inodes))
	le.PutUint32(b[36:], uint32(size/BlockSize))
	le.PutUint32(b[40:], uint32(meta/BlockSize))
	if w.chunked {
		le.PutUint32(b[80:], incompatChunked)
	}
	return b
}

func (w *Writer) tooLarge() error {
	return fmt.Errorf("more than %d bytes: %w", w.limit, ErrTooLarge)
}

// readSpool returns a small file's content.
func (w *Writer) readSpool(d *Data) ([]byte, error) {
	b := make([]byte, d.size)
	_, err := w.f.ReadAt(b, d.offset)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}
