// Package copyup copies the image's files at a volume's mount point into an empty volume.
//
// It copies into a directory of the volume, renames that directory when the copy is complete, and then moves its
// contents to the top. If the VM dies meanwhile, the next one starts the copy again or finishes the move. A partial
// copy never counts as complete.
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

// Names in a volume that is being filled, and the directory in an empty ext4.
const (
	making    = ".bulkhead-copying"
	made      = ".bulkhead-copied"
	lostFound = "lost+found"
)

// ours are names at a volume's top that are not copied from an image, and that do not count as contents.
var ours = []string{making, made, lostFound}

// Bounds of a copy.
const (
	maxLevels  = guesttree.MaxLevels
	maxEntries = 1 << 20
)

// ErrTooMuch is returned for an image's directory with too many files or nested directories.
var ErrTooMuch = errors.New("it has too many files or nested directories to be copied into a volume")

// Fill copies the files at a path in a container's root to an empty volume that no other container uses, with owners,
// modes and times. The volume's top gets the directory's owner and mode. Fill does nothing if the path is not a
// directory or leads out of the root. It skips devices and sockets. It ends with ctx; an error leaves the volume empty.
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
	some, err := names(to, len(ours)+1) // a volume in use may have any number
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

// source opens the directory to copy from a container's root; -1 is none.
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

// raise moves a complete copy to the volume's top.
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

// all returns the names in a directory, which must be fewer than maxEntries.
func all(dir int) ([]string, error) {
	found, err := names(dir, maxEntries)
	if len(found) == maxEntries {
		return nil, ErrTooMuch
	}
	return found, err
}

// names returns at most most names of a directory.
func names(dir, most int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	found, err := f.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		err = nil // an empty directory
	}
	return found, err
}
