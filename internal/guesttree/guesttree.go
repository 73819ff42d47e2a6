// Package guesttree walks and removes directory trees that a guest has made: of any depth and
// width, with any names and modes, and changed meanwhile by whoever still has them.
//
// Only descriptors and single names are used, never joined paths: no link is followed, nothing
// that is mounted in a tree is entered, and neither memory nor descriptors grow with the tree.
package guesttree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// MaxLevels is how many directories are open at once, each below the one before.
const MaxLevels = 64

// portion is how many names of a directory are held at once.
const portion = 256

// level is a directory that is open, and those of its names that were read and are to be looked at.
type level struct {
	dir   *os.File
	fd    int
	names []string
}

// openLevel opens the directory name in dir, which is on the same mount: EXDEV, and ENOTDIR or
// ELOOP of what is no directory.
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

// openat2 opens what is on the same mount, and follows no link.
func openat2(dir int, name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// enter lets the owner of a directory into it.
func enter(dir int, name string) error {
	fd, err := open(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700)
}

// next is the directory's next name. At its end, which is also that of one that was removed, it is
// io.EOF.
func (l *level) next() (string, error) {
	if len(l.names) == 0 {
		names, err := l.dir.Readdirnames(portion)
		switch {
		case errors.Is(err, unix.ENOENT):
			return "", io.EOF
		case err == io.EOF:
			return "", io.EOF
		case err != nil:
			return "", fmt.Errorf("read a directory: %w", bare(err))
		}
		l.names = names
	}
	name := l.names[0]
	l.names = l.names[1:]
	return name, nil
}

// bare is an error without the path, which a guest has chosen.
func bare(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
