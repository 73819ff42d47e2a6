// Package nodes keeps the files that a guest knows, within bounds.
//
// A node is a file that the guest has looked up, with the id that the guest got. It is found again by the file's
// identity, so hard links share one. While there are few nodes, each has an O_PATH descriptor. Beyond that the least
// recently used ones are closed, and opened again by their last name below their parent's descriptor. If another file
// has the name then, the error is ESTALE, as in NFS.
package nodes

import (
	"golang.org/x/sys/unix"
)

// A Tree is one shared directory, or one shared file. Its fields do not change once it is added.
type Tree struct {
	// Name is the entry of the synthetic root.
	Name string
	// ReadOnly refuses every change.
	ReadOnly bool
	// SetID lets the guest give regular files set-user-id and set-group-id bits.
	SetID bool
	// Cache is the cache mode.
	Cache Cache

	id   uint32
	dead bool // under the table's lock
	root *Node
}

// Cache says what the guest's kernel may cache of a tree.
type Cache int

const (
	// Auto caches names and attributes for less than a second, and data from one open to the next if the file has not
	// changed.
	Auto Cache = iota
	// None caches nothing.
	None
	// Always caches everything. It is for trees that do not change.
	Always
)

// Root is the id of the synthetic directory that holds all trees.
const Root = 1

// A Node is one file that the guest knows. The table's lock guards all fields except those that never change: id, key,
// tree, Type.
type Node struct {
	id   uint64
	key  key
	born int64 // the file's birth time in ns, 0 if unknown
	tree *Tree
	// Type is the S_IFMT part of the file's mode.
	Type uint32

	parent *Node
	name   string
	// prev and next link the list of nodes with a descriptor that may be closed.
	prev, next *Node

	lookups uint64 // not forgotten by the guest
	seen    uint64 // version of the data in the guest's page cache, see Ref.Seen
	fd      int32  // -1: none
	using   int32  // Refs
	kids    int32  // nodes with this parent
	opens   int32  // open handles
	pinned  bool   // cannot be opened again by a name
	listed  bool   // in the list
}

// key is a file's identity. Two mounts of one file are two files, as for rename(2).
type key struct {
	volume uint32 // an index of Table.volumes
	ino    uint64
}

// volume is a mount in a tree.
type volume struct {
	tree  uint32
	dev   uint64
	mount uint64
}

// statxMask are the fields that are read of every file.
const statxMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID

// Stat returns the state of the file of fd, an O_PATH descriptor.
func Stat(fd int, st *unix.Statx_t) error {
	return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, statxMask, st)
}

// StatAt returns the state of the file name, which is one component, in the directory dir.
func StatAt(dir int, name string, st *unix.Statx_t) error {
	return unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, statxMask, st)
}

// OpenAt returns an O_PATH descriptor of the file name, which is one component, in the directory dir. It follows no
// links.
func OpenAt(dir int, name string) (int, error) {
	return Openat2(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
}

// Openat2 opens name, which is one component, in the directory dir, and no file outside of it.
func Openat2(dir int, name string, flags int, mode uint32) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Mode:    uint64(mode),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func birthTime(st *unix.Statx_t) int64 {
	if st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}
