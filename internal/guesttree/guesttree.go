// Package guesttree walks and removes directory trees that a guest has created. They may have any depth, width, names
// and modes, and may change meanwhile.
//
// It uses only descriptors and single names, never joined paths. It follows no link, enters no mount, and its memory
// and descriptors do not grow with the tree.
package guesttree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// MaxLevels is the most nested directories that are open at once.
const MaxLevels = 64

// portion is the most names of a directory that are held at once.
const portion = 256

// level is an open directory with names that were read and not handled yet.
type level struct {
	dir   *os.File
	fd    int
	names []string
}

// openLevel opens the directory name in dir, on the same mount. Errors: EXDEV for a mount, ENOTDIR or ELOOP if it is
// not a directory.
func openLevel(dir int, name string) (level, error) {
	fd, err := open(dir, name, unix.O_RDONLY)
	if err != nil {
		return level{}, err
	}
	return level{dir: os.NewFile(uintptr(fd), name), fd: fd}, nil
}

func open(dir int, name string, flags uint64) (int, error) {
	return openat2(dir, name, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
}

// openat2 opens a file on the same mount, and follows no link.
func openat2(dir int, name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// makeAccessible gives the owner of a directory access to it.
func makeAccessible(dir int, name string) error {
	fd, err := open(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700)
}

// next returns the directory's next name, or io.EOF at its end, also for a directory that was removed.
func (l *level) next() (string, error) {
	if len(l.names) == 0 {
		names, err := l.dir.Readdirnames(portion)
		switch {
		case errors.Is(err, unix.ENOENT):
			return "", io.EOF
		case err == io.EOF:
			return "", io.EOF
		case err != nil:
			return "", fmt.Errorf("read a directory: %w", withoutPath(err))
		}
		l.names = names
	}
	name := l.names[0]
	l.names = l.names[1:]
	return name, nil
}

// withoutPath returns an error without the path, which a guest has chosen.
func withoutPath(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
