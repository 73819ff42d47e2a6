package convert

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Local is the Host of the calling process.
type Local struct{}

// Node describes the file at a path.
func (Local) Node(path string) (Node, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Node{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	n := Node{Mode: st.Mode & 0o7777, GID: st.Gid, Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		n.Type = Regular
	case unix.S_IFDIR:
		n.Type = Dir
	case unix.S_IFSOCK:
		n.Type = Socket
	case unix.S_IFIFO:
		n.Type = FIFO
	case unix.S_IFCHR:
		n.Type = Char
	case unix.S_IFBLK:
		n.Type = Block
	default:
		return Node{}, fmt.Errorf("%s has an unknown type", path)
	}
	return n, nil
}

// ShmBytes returns the size of a tmpfs at a path, else 0.
func (Local) ShmBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if st.Type != unix.TMPFS_MAGIC {
		return 0, nil
	}
	return int64(st.Blocks) * st.Bsize, nil
}
