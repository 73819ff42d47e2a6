package erofs

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Data is the content of a regular file that the Writer has stored.
type Data struct {
	size    int64
	inline  bool     // small: kept at the end of the disk until Finish
	offset  int64    // in the disk, if there are no holes
	chunks  []uint32 // with holes: the first block of each chunk
	written int64    // bytes taken in the disk from offset on
	used    bool
}

var zeroChunk [chunkSize]byte

// Store stores size bytes from r as the content of one file. A chunk of zeros takes no space on the disk. It returns
// r's error, or io.ErrUnexpectedEOF if r ends early.
func (w *Writer) Store(r io.Reader, size int64) (*Data, error) {
	if size == 0 {
		return nil, nil
	}
	d := &Data{size: size}
	w.data = append(w.data, d)
	if size <= maxInline {
		if _, err := io.ReadFull(r, w.buf[:size]); err != nil {
			return nil, early(err)
		}
		if w.spooled += size; w.next+w.spooled > w.limit {
			return nil, w.tooLarge()
		}
		d.inline, d.offset = true, w.limit-w.spooled
		_, err := w.f.WriteAt(w.buf[:size], d.offset)
		return d, err
	}
	d.offset = w.next
	for done := int64(0); done < size; {
		n := min(int64(len(w.buf)), size-done)
		if _, err := io.ReadFull(r, w.buf[:n]); err != nil {
			return nil, early(err)
		}
		if err := w.storePiece(d, w.buf[:n], done); err != nil {
			return nil, err
		}
		done += n
	}
	d.written = w.next - d.offset
	return d, nil
}

// storePiece writes the next piece of a file. All pieces but the last have whole chunks.
func (w *Writer) storePiece(d *Data, piece []byte, done int64) error {
	start := 0 // of the run of chunks not written yet
	flush := func(end int) error {
		if end == start {
			return nil
		}
		size := align(int64(end-start), BlockSize)
		if w.next+size+w.spooled > w.limit {
			return w.tooLarge()
		}
		_, err := w.f.WriteAt(piece[start:end], w.next)
		w.next += size
		return err
	}
	for at := 0; at < len(piece); at += chunkSize {
		chunk := piece[at:min(at+chunkSize, len(piece))]
		hole := len(chunk) > BlockSize && bytes.Equal(chunk, zeroChunk[:len(chunk)])
		if hole {
			if err := flush(at); err != nil {
				return err
			}
			start = at + len(chunk)
			if d.chunks == nil {
				d.fillChunks(int((done + int64(at)) / chunkSize))
			}
			d.chunks = append(d.chunks, nullBlock)
		} else if d.chunks != nil {
			d.chunks = append(d.chunks, uint32((w.next+int64(at-start))/BlockSize))
		}
	}
	return flush(len(piece))
}

// fillChunks fills in the chunks before the first hole, which are contiguous.
func (d *Data) fillChunks(n int) {
	d.chunks = make([]uint32, n, n+8)
	for i := range d.chunks {
		d.chunks[i] = uint32(d.offset/BlockSize) + uint32(i)<<chunkBits
	}
}

// dropUnused frees the space of content that no file uses any more, if the host's file system can do that.
func (w *Writer) dropUnused() error {
	for _, d := range w.data {
		if d.used || d.inline || d.written == 0 {
			continue
		}
		err := unix.Fallocate(int(w.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, d.offset, d.written)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("free %d bytes: %w", d.written, err)
		}
	}
	return nil
}

func early(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
