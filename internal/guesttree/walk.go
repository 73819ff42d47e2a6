package guesttree

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrBounds is returned for a tree with more levels or entries than the bounds: only a part was visited.
var ErrBounds = errors.New("it has too many nested directories or files")

// Bounds bound a walk. Zero Entries means any number.
type Bounds struct {
	Levels  int // nested directories, with the top; at most MaxLevels
	Entries int
}

// Walk calls visit for everything below the directory path, a directory before its entries, in no order. dir is open
// during the call, and name is one component in it; the name may mean another file by the time it is used. The walk
// ends with ctx, or with an error of visit, and returns that error. It skips mounts and entries that vanish or cannot
// be read. It also skips entries beyond the bounds, and returns ErrBounds after the others.
func Walk(ctx context.Context, path string, b Bounds, visit func(dir int, name string, st *unix.Stat_t) error) error {
	// The path to the top is trusted, including mounts.
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	top := os.NewFile(uintptr(fd), path)
	defer top.Close()
	return walk(ctx, top, b, visit)
}

// walk is like Walk from an open directory.
func walk(ctx context.Context, top *os.File, b Bounds, visit func(dir int, name string, st *unix.Stat_t) error) error {
	first, err := openLevel(int(top.Fd()), ".")
	if err != nil {
		return fmt.Errorf("open %s: %w", top.Name(), err)
	}
	levels := []level{first}
	defer func() {
		for _, l := range levels {
			l.dir.Close()
		}
	}()
	var beyond error
	for seen := 0; len(levels) > 0; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		at := &levels[len(levels)-1]
		name, err := at.next()
		if err != nil {
			if exhausted(err) {
				return err
			}
			at.dir.Close()
			levels = levels[:len(levels)-1]
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(at.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		if seen++; b.Entries > 0 && seen > b.Entries {
			return ErrBounds
		}
		if err := visit(at.fd, name, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if len(levels) >= min(b.Levels, MaxLevels) {
			beyond = ErrBounds
			continue
		}
		below, err := openLevel(at.fd, name)
		switch {
		case err == nil:
			levels = append(levels, below)
		case exhausted(err):
			return fmt.Errorf("open a directory: %w", err)
		}
	}
	return beyond
}

// exhausted reports whether an error concerns the host rather than the tree.
func exhausted(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOSYS)
}
