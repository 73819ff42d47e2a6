package layer

import (
	"archive/tar"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bulkhead-project/bulkhead/image/erofs"
)

// The file types of st_mode.
const (
	modeFifo    = 0o010000
	modeChar    = 0o020000
	modeBlock   = 0o060000
	modeRegular = 0o100000
	modeSymlink = 0o120000
)

// xattrRecord is the prefix of the PAX records that hold extended attributes.
const xattrRecord = "SCHILY.xattr."

// overlayXattr is overlayfs's own name space. Images must not set its attributes.
const overlayXattr = "trusted.overlay."

// inode returns the inode of an entry, unless the entry is an existing directory, and stores a file's content.
func (t *Tree) inode(h *tar.Header, in io.Reader) (*erofs.Inode, error) {
	node := &erofs.Inode{}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		node = erofs.NewDir(0)
	case tar.TypeLink:
		return t.linked(h.Linkname)
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		node.Mode = modeRegular
		if err := t.budget.file(h.Size); err != nil {
			return nil, err
		}
		if node.Data, err = t.out.Store(in, h.Size); err != nil {
			return nil, err
		}
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) >= maxPath {
			return nil, fmt.Errorf("%w: symbolic link to %d bytes", ErrHostile, len(h.Linkname))
		}
		node.Mode, node.Target = modeSymlink, h.Linkname
	case tar.TypeChar, tar.TypeBlock:
		node.Mode = modeChar
		if h.Typeflag == tar.TypeBlock {
			node.Mode = modeBlock
		}
		node.Rdev, err = erofs.Device(h.Devmajor, h.Devminor)
	case tar.TypeFifo:
		node.Mode = modeFifo
	default:
		return nil, fmt.Errorf("%w: unknown type %q", ErrHostile, h.Typeflag)
	}
	if err != nil {
		return nil, err
	}
	return node, setAttributes(node, h)
}

// setAttributes sets the attributes that every kind of file has.
func setAttributes(node *erofs.Inode, h *tar.Header) error {
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) >= 1<<32-1 || int64(h.Gid) >= 1<<32-1 {
		return fmt.Errorf("%w: owner %d:%d", ErrHostile, h.Uid, h.Gid)
	}
	node.Mode = node.Mode&^0o7777 | uint16(h.Mode&0o7777)
	if node.IsSymlink() {
		node.Mode |= 0o777 // Linux has no other mode for links
	}
	node.UID, node.GID = uint32(h.Uid), uint32(h.Gid)
	node.Mtime, node.MtimeNsec = h.ModTime.Unix(), uint32(h.ModTime.Nanosecond())
	node.Xattrs = nil
	for record, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(record, xattrRecord)
		if ok && !strings.HasPrefix(name, overlayXattr) {
			node.Xattrs = append(node.Xattrs, erofs.Xattr{Name: name, Value: value})
		}
	}
	slices.SortFunc(node.Xattrs, func(a, b erofs.Xattr) int { return strings.Compare(a.Name, b.Name) })
	return node.CheckXattrs()
}

// cost returns about how much memory an entry takes.
func cost(h *tar.Header) int64 {
	n := entryCost + len(h.Name) + len(h.Linkname)
	for k, v := range h.PAXRecords {
		n += len(k) + len(v)
	}
	return int64(n)
}
