package erofs

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// placed is an inode in the order of the metadata area.
type placed struct{ node, parent *Inode }

// plan visits every inode once, directories before their entries, and sets its position. Content that does not fit
// beside its inode gets blocks. end is the size of the metadata area.
func (w *Writer) plan(root *Inode) (order []placed, end int64, err error) {
	pos := int64(firstSlot * slotSize)
	var visit func(n, parent *Inode) error
	visit = func(n, parent *Inode) error {
		n.links++
		if n.links > 1 {
			return nil
		}
		if err := w.place(n, &pos); err != nil {
			return err
		}
		order = append(order, placed{n, parent})
		for _, name := range n.names {
			if e := n.Entries[name]; e != nil {
				if err := visit(e.Inode, n); err != nil {
					return fmt.Errorf("%.255q: %w", name, err)
				}
				if e.Inode.IsDir() {
					n.links++
				}
			}
		}
		if n.IsDir() {
			n.links++ // its own "."
		}
		return nil
	}
	err = visit(root, root)
	return order, align(pos, BlockSize), err
}

// place decides an inode's layout and position.
func (w *Writer) place(n *Inode, pos *int64) error {
	w.inodes++
	n.ino = w.inodes
	if err := n.CheckXattrs(); err != nil {
		return err
	}
	tail, tailAlign := int64(0), int64(1)
	switch {
	case n.IsDir():
		planDir(n)
		tail = n.size
	case n.IsSymlink():
		n.size = int64(len(n.Target))
		tail = n.size
	case n.IsRegular() && n.Data != nil:
		n.Data.used = true
		n.size = n.Data.size
		switch {
		case n.Data.inline:
			tail = n.size
		case n.Data.chunks != nil:
			n.layout, n.union, w.chunked = layoutChunk, chunkFormatIndex|chunkBits, true
			tail, tailAlign = int64(len(n.Data.chunks))*chunkIndexSize, chunkIndexSize
		default:
			n.union = uint32(n.Data.offset / BlockSize)
		}
	case !n.IsRegular():
		n.union = n.Rdev
	}
	header := int64(inodeSize + n.xattrSize)
	if n.layout == layoutPlain && tail > 0 {
		if header+tail <= BlockSize {
			n.layout = layoutInline
		} else {
			n.union = uint32(w.next / BlockSize)
			w.next += align(tail, BlockSize)
			tail = 0
		}
	}
	at := align(*pos, slotSize)
	// Neither an inode nor the content beside it may cross a block.
	whole := int64(inodeSize)
	if n.layout == layoutInline {
		whole = header + tail
	}
	if at%BlockSize+whole > BlockSize {
		at = align(at, BlockSize)
	}
	n.pos = at
	*pos = align(at+header, tailAlign) + tail
	return nil
}

// writeMeta writes the metadata area at offset meta, and the content that plan has moved out of it.
func (w *Writer) writeMeta(order []placed, meta int64) error {
	out := bufio.NewWriterSize(io.NewOffsetWriter(w.f, meta), 1<<20)
	var at int64
	var b []byte
	for _, p := range order {
		b = b[:0]
		for ; at < p.node.pos; at++ {
			b = append(b, 0)
		}
		inode := len(b)
		b = append(b, make([]byte, inodeSize)...)
		putInode(b[inode:], p.node)
		// Attributes are aligned to the inode, not to the padding before it.
		b = append(b, appendXattrs(nil, p.node)...)
		tail, err := w.tail(p)
		if err != nil {
			return err
		}
		if p.node.layout == layoutChunk {
			for (at+int64(len(b)-inode))%chunkIndexSize != 0 {
				b = append(b, 0)
			}
		}
		if p.node.layout == layoutPlain && len(tail) > 0 {
			if _, err := w.f.WriteAt(tail, int64(p.node.union)*BlockSize); err != nil {
				return err
			}
			tail = nil
		}
		b = append(b, tail...)
		at += int64(len(b) - inode)
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
	return out.Flush()
}

// tail returns the part of an inode's content that Finish writes.
func (w *Writer) tail(p placed) ([]byte, error) {
	n := p.node
	switch {
	case n.IsDir():
		return w.dirents(n, p.parent), nil
	case n.IsSymlink():
		return []byte(n.Target), nil
	case n.IsRegular() && n.Data != nil && n.Data.inline:
		return w.readSpool(n.Data)
	case n.layout == layoutChunk:
		var b []byte
		for _, block := range n.Data.chunks {
			b = binary.LittleEndian.AppendUint32(b, 0)
			b = binary.LittleEndian.AppendUint32(b, block)
		}
		return b, nil
	}
	return nil, nil
}
