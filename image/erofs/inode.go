package erofs

import (
	"errors"
	"fmt"
)

// ErrTooLarge is returned if something exceeds the format or the writer's bounds.
var ErrTooLarge = errors.New("too large for an EROFS disk")

// Inode is one file of any kind. The same Inode under several names is a hard
// link. An Inode belongs to one Writer and is not safe for concurrent use.
type Inode struct {
	Mode      uint16 // type and permissions, as in st_mode
	UID, GID  uint32
	Rdev      uint32 // of devices, encoded like the kernel's new_encode_dev
	Mtime     int64  // seconds since the epoch
	MtimeNsec uint32
	Xattrs    []Xattr           // names outside the known name spaces are dropped
	Target    string            // of symbolic links
	Entries   map[string]*Entry // of directories
	Data      *Data             // of regular files; nil is empty

	// The fields below are set by Finish.
	size      int64
	links     uint32
	ino       uint32
	pos       int64 // of the inode in the metadata area
	layout    uint16
	union     uint32
	xattrSize int
	names     []string // of a directory, sorted, "." and ".." included
	blocks    int      // of a directory
}

// Entry is a name in a directory. Tag belongs to the builder of the tree.
type Entry struct {
	Inode *Inode
	Tag   int
}

// Xattr is one extended attribute.
type Xattr struct{ Name, Value string }

// NewDir returns an empty directory, owned by root.
func NewDir(perm uint16) *Inode {
	return &Inode{Mode: typeDir | perm&0o7777, Entries: map[string]*Entry{}}
}

// IsDir reports whether the inode is a directory.
func (n *Inode) IsDir() bool { return n.Mode&typeMask == typeDir }

// IsRegular reports whether the inode is a regular file.
func (n *Inode) IsRegular() bool { return n.Mode&typeMask == typeRegular }

// IsSymlink reports whether the inode is a symbolic link.
func (n *Inode) IsSymlink() bool { return n.Mode&typeMask == typeSymlink }

// Device returns Rdev for a device, or ErrTooLarge.
func Device(major, minor int64) (uint32, error) {
	if major < 0 || major > 0xfff || minor < 0 || minor > 0xfffff {
		return 0, fmt.Errorf("device %d:%d: %w", major, minor, ErrTooLarge)
	}
	return uint32(minor&0xff) | uint32(major)<<8 | uint32(minor&^0xff)<<12, nil
}

// CheckXattrs returns ErrTooLarge if the attributes exceed the format. Finish checks the same, but later.
func (n *Inode) CheckXattrs() error {
	size := 0
	for _, x := range n.Xattrs {
		_, rest, ok := splitXattr(x.Name)
		if !ok {
			continue
		}
		if len(x.Value) > maxXattrValue {
			return fmt.Errorf("attribute %.64q of %d bytes: %w", x.Name, len(x.Value), ErrTooLarge)
		}
		size += int(align(int64(4+len(rest)+len(x.Value)), 4))
	}
	if size > 0 {
		size += xattrHeaderSize
	}
	if size > maxXattrSize {
		return fmt.Errorf("attributes of %d bytes: %w", size, ErrTooLarge)
	}
	n.xattrSize = size
	return nil
}
