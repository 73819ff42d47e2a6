package place

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// Node is a file of the host of any kind, which was inspected and not opened.
type Node struct {
	Path   string // its path, without links
	Mode   uint32 // its type and permissions, as in stat(2)
	Group  uint32
	Device uint64 // the number of its device, as in stat(2)
}

// IsBlock reports whether it is a block device's.
func (n Node) IsBlock() bool { return n.Mode&unix.S_IFMT == unix.S_IFBLK }

// Stat inspects the file that path names now, following links, whether or not a pod may have it. It waits for a file
// system as long as Rules.Open does. Errors match ErrSilent, or the kernel's.
func Stat(ctx context.Context, path string) (Node, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, ErrSilent)
	defer cancel()
	var seen Node // an abandoned call may still write it
	_, err := left.bound(ctx, path, func() (_ *Place, err error) {
		seen, err = stat(path)
		return nil, err
	})
	if err != nil {
		return Node{}, err
	}
	return seen, nil
}

func stat(path string) (n Node, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return n, fmt.Errorf("host path %.200q: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		n = Node{Mode: st.Mode, Group: st.Gid, Device: st.Rdev}
		n.Path, err = at(fd)
	}
	if err != nil {
		return n, fmt.Errorf("host path %.200q: %w", path, err)
	}
	return n, nil
}
