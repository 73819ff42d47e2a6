// Package copyup gives an empty volume what an image has where the volume is mounted.
//
// The copy is made in a directory of the volume's own, which is renamed when it is complete, and whose
// contents are moved to the top then. A machine that dies meanwhile leaves a volume that the next one
// begins with anew, or finishes, and never a part of the copy as the whole.
package copyup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// The names in a volume that is being filled, and what is in an ext4 that is empty.
const (
	making    = ".bulkhead-copying"
	made      = ".bulkhead-copied"
	lostFound = "lost+found"
)

// ours are the names at a volume's top that an image's files do not get, and that make no volume one in use.
var ours = []string{making, made, lostFound}

// Bounds of what is copied.
const (
	maxLevels  = guesttree.MaxLevels
	maxEntries = 1 << 20
)

// ErrTooMuch is of an image's directory that has more files, or directories in each other, than are copied.
var ErrTooMuch = errors.New("it has too many files or nested directories to be copied into a volume")

// Fill copies what a container's root has at a path to a volume, which nobody else has, if that is empty,
// with owners, modes and times, and gives the volume's top the owner and mode of that directory. What is no
// directory there, or leads out of the root, is left alone. Devices and sockets are left out. It ends with
// ctx; an error leaves the volume empty.
func Fill(ctx context.Context, root, at, volume string) error {
	to, err := unix.Open(volume, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the volume: %w", err)
	}
	defer unix.Close(to)
	var st unix.Stat_t
	if unix.Fstatat(to, made, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return raise(to)
	}
	some, err := names(to, len(ours)+1) // of a volume in use there may be any number
	if err != nil {
		return fmt.Errorf("read the volume: %w", err)
	}
	if slices.ContainsFunc(some, func(name string) bool { return !slices.Contains(ours, name) }) {
		return nil
	}
	from, err := source(root, at)
	if err != nil || from < 0 {
		return err
	}
	defer unix.Close(from)
	staging := filepath.Join(volume, making)
	if err := guesttree.Remove(ctx, staging); err != nil {
		return fmt.Errorf("clear the volume: %w", err)
	}
	c := copier{ctx: ctx, links: map[inode]string{}}
	if err := c.run(from, to); err != nil {
		return errors.Join(err, guesttree.Remove(context.WithoutCancel(ctx), staging))
	}
	if err := unix.Renameat(to, making, to, made); err != nil {
		return fmt.Errorf("complete the copy: %w", err)
	}
	return raise(to)
}

// source opens the directory of a container's root that is to be copied; -1 is none.
func source(root, at string) (int, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the root: %w", err)
	}
	defer unix.Close(dir)
	fd, err := unix.Openat2(dir, at, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return -1, nil
	}
	return -1, fmt.Errorf("open %.200q of the root: %w", at, err)
}

// raise moves a copy that is complete to the volume's top.
func raise(volume int) error {
	dir, err := openDir(volume, made)
	if err != nil {
		return fmt.Errorf("open the copy: %w", err)
	}
	defer unix.Close(dir)
	names, err := all(dir)
	for _, name := range names {
		if err == nil {
			err = unix.Renameat(dir, name, volume, name)
		}
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(dir, &st)
	}
	if err == nil {
		err = errors.Join(unix.Fchown(volume, int(st.Uid), int(st.Gid)), unix.Fchmod(volume, st.Mode&0o7777))
	}
	if err == nil {
		err = unix.Unlinkat(volume, made, unix.AT_REMOVEDIR)
	}
	if err != nil {
		return fmt.Errorf("move the copy: %w", err)
	}
	return nil
}

func openDir(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// all are the names in a directory, of which there are less than maxEntries.
func all(dir int) ([]string, error) {
	found, err := names(dir, maxEntries)
	if len(found) == maxEntries {
		return nil, ErrTooMuch
	}
	return found, err
}

// names are those in a directory, so many at the most.
func names(dir, most int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	found, err := f.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		err = nil // of an empty one
	}
	return found, err
}
