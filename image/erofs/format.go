package erofs

import (
	"encoding/binary"
	"strings"
)

// BlockSize is the file system's block size, and the page size of the VMs that mount it.
const BlockSize = 4096

// The parts of the on-disk format that the writer uses: see the kernel's fs/erofs/erofs_fs.h.
const (
	superOffset = 1024
	superSize   = 128
	superMagic  = 0xE0F5E1E2

	compatMtime      = 0x2
	incompatChunked  = 0x4
	inodeSize        = 64 // the extended form, the only one with 32-bit owners and a time
	slotSize         = 32 // an inode's number is its offset in slots
	direntSize       = 12
	chunkIndexSize   = 8
	chunkFormatIndex = 0x20
	chunkBits        = 4 // a chunk is BlockSize << chunkBits
	chunkSize        = BlockSize << chunkBits
	nullBlock        = ^uint32(0)
	xattrHeaderSize  = 12
	maxXattrName     = 255
	maxXattrValue    = 1<<16 - 1
	maxXattrSize     = 1 << 17
	layoutPlain      = 0
	layoutInline     = 2
	layoutChunk      = 4
	blockBits        = 12
	maxInline        = 3 << 10 // the largest file that is stored beside its inode
	firstSlot        = 1       // no inode has number 0, which means "none" to programs
	typeMask         = 0o170000
	typeFifo         = 0o010000
	typeChar         = 0o020000
	typeDir          = 0o040000
	typeBlock        = 0o060000
	typeRegular      = 0o100000
	typeSymlink      = 0o120000
	typeSocket       = 0o140000
)

// xattrPrefixes are the name spaces that the format knows.
var xattrPrefixes = []struct {
	index  byte
	prefix string
	whole  bool // the prefix is the whole name
}{
	{2, "system.posix_acl_access", true},
	{3, "system.posix_acl_default", true},
	{1, "user.", false},
	{4, "trusted.", false},
	{6, "security.", false},
}

// splitXattr returns the prefix index and the rest of an attribute's name.
func splitXattr(name string) (index byte, rest string, ok bool) {
	for _, p := range xattrPrefixes {
		if p.whole && name == p.prefix {
			return p.index, "", true
		}
		rest, found := strings.CutPrefix(name, p.prefix)
		if !p.whole && found && rest != "" && len(rest) <= maxXattrName {
			return p.index, rest, true
		}
	}
	return 0, "", false
}

// fileType returns the type byte of a directory entry.
func fileType(mode uint16) byte {
	switch mode & typeMask {
	case typeRegular:
		return 1
	case typeDir:
		return 2
	case typeChar:
		return 3
	case typeBlock:
		return 4
	case typeFifo:
		return 5
	case typeSocket:
		return 6
	case typeSymlink:
		return 7
	}
	return 0
}

// putInode writes the 64 bytes of an extended inode.
func putInode(b []byte, n *Inode) {
	le := binary.LittleEndian
	le.PutUint16(b[0:], 1|n.layout<<1)
	if n.xattrSize > 0 {
		le.PutUint16(b[2:], uint16((n.xattrSize-xattrHeaderSize)/4+1))
	}
	le.PutUint16(b[4:], n.Mode)
	le.PutUint64(b[8:], uint64(n.size))
	le.PutUint32(b[16:], n.union)
	le.PutUint32(b[20:], n.ino)
	le.PutUint32(b[24:], n.UID)
	le.PutUint32(b[28:], n.GID)
	le.PutUint64(b[32:], uint64(n.Mtime))
	le.PutUint32(b[40:], n.MtimeNsec)
	le.PutUint32(b[44:], n.links)
}

// appendXattrs appends the inline attribute area of n.xattrSize bytes.
func appendXattrs(b []byte, n *Inode) []byte {
	if n.xattrSize == 0 {
		return b
	}
	b = append(b, make([]byte, xattrHeaderSize)...)
	for _, x := range n.Xattrs {
		index, rest, ok := splitXattr(x.Name)
		if !ok {
			continue
		}
		b = append(b, byte(len(rest)), index)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(x.Value)))
		b = append(append(b, rest...), x.Value...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	return b
}

func align(n, to int64) int64 { return (n + to - 1) / to * to }
