package guesttree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// refills is how often a directory is emptied again while another process creates files in it.
const refills = 16

// Remove removes path with everything below it. A missing path is not an error. It ends with ctx, and can be called
// again then, also concurrently. It keeps files that cannot be removed, and returns the first failure; mounts are
// failures (EBUSY, EXDEV). In a tree deeper than MaxLevels, deeper directories are first renamed to its top. If a
// directory's mode denies its owner access, the mode is changed.
func Remove(ctx context.Context, path string) error {
	parent, err := os.Open(filepath.Dir(path)) // trusted, since the caller owns it
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove a tree: %w", err)
	}
	defer parent.Close()
	r := remover{levels: []*doomed{{level: level{dir: parent, fd: int(parent.Fd())}}}}
	if err := r.run(ctx, filepath.Base(path)); err != nil {
		return fmt.Errorf("remove the tree %s: %w", path, err)
	}
	return nil
}

// remover removes one tree. The first of its levels is the tree's parent.
type remover struct {
	levels []*doomed
	failed error // the first failure
}

// doomed is a directory of the tree.
type doomed struct {
	level
	name    string // in the level above
	seen    bool   // found a name since the last rewind: read again until there is none
	moved   bool   // a directory was moved here since then
	stays   bool   // has an entry that could not be removed
	refills int
}

func (r *remover) run(ctx context.Context, name string) error {
	defer func() {
		for _, l := range r.levels[1:] {
			l.dir.Close()
		}
	}()
	r.entry(r.levels[0], name)
	for len(r.levels) > 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := r.levels[len(r.levels)-1]
		name, err := at.next()
		if err == nil {
			at.seen = true
			r.entry(at, name)
			continue
		}
		if !errors.Is(err, io.EOF) {
			r.fail(at, err)
		}
		if !at.nextPass() && !r.drop(at) {
			at.dir.Close()
			r.levels = r.levels[:len(r.levels)-1]
		}
	}
	return r.failed
}

// fail records that an entry of at could not be removed.
func (r *remover) fail(at *doomed, err error) {
	at.stays = true
	if r.failed == nil {
		r.failed = err
	}
}

// nextPass rewinds the directory, unless it is empty or its remaining entries cannot be removed.
func (l *doomed) nextPass() bool {
	if l.moved || l.seen && !l.stays {
		return l.rewind()
	}
	return false
}

func (l *doomed) rewind() bool {
	l.seen, l.moved = false, false
	_, err := l.dir.Seek(0, io.SeekStart)
	return err == nil
}

// drop removes an empty directory. It returns true if the directory must be emptied once more.
func (r *remover) drop(at *doomed) (again bool) {
	above := r.levels[len(r.levels)-2]
	if at.stays {
		above.stays = true
		return false
	}
	err := above.rmdir(at.name)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return false
	case (errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)) && at.refills < refills:
		at.refills++
		if at.rewind() {
			return true
		}
	}
	r.fail(above, fmt.Errorf("%q: %w", at.name, err))
	return false
}

// entry removes a file, or starts with a directory.
func (r *remover) entry(at *doomed, name string) {
	err := at.change(func() error { return unix.Unlinkat(at.fd, name, 0) })
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = r.directory(at, name, err)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		r.fail(at, fmt.Errorf("%q: %w", name, err))
	}
}

// directory starts with a directory. If it is too deep, it is removed or moved. For other files it returns undeletable,
// the error of their removal.
func (r *remover) directory(at *doomed, name string, undeletable error) error {
	if len(r.levels) > MaxLevels {
		err := at.rmdir(name)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return r.move(at, name)
		}
		return err
	}
	below, err := openLevel(at.fd, name)
	if errors.Is(err, unix.EACCES) {
		if makeAccessible(at.fd, name) != nil { // another user's, removed only if it is empty
			return at.rmdir(name)
		}
		below, err = openLevel(at.fd, name)
	}
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return undeletable
	}
	if err == nil {
		r.levels = append(r.levels, &doomed{level: below, name: name})
	}
	return err
}

// move moves a directory to the top of the tree, where it is found again.
func (r *remover) move(at *doomed, name string) error {
	top := r.levels[1]
	var fresh [16]byte // from the kernel: clones of a guest share other random data
	if _, err := unix.Getrandom(fresh[:], 0); err != nil {
		return err
	}
	rename := func() error { return unix.Renameat(at.fd, name, top.fd, fmt.Sprintf(".deep-%x", fresh)) }
	err := at.change(func() error { return top.change(rename) })
	if errors.Is(err, unix.EACCES) && makeAccessible(at.fd, name) == nil { // its .. changes too
		err = rename()
	}
	if err == nil {
		top.moved = true
	}
	return err
}

// rmdir removes an empty directory in l.
func (l *doomed) rmdir(name string) error {
	return l.change(func() error { return unix.Unlinkat(l.fd, name, unix.AT_REMOVEDIR) })
}

// change calls deed, which changes the directory. If access is denied, it gives the owner access and tries again.
func (l *doomed) change(deed func() error) error {
	err := deed()
	if errors.Is(err, unix.EACCES) && l.name != "" && unix.Fchmod(l.fd, 0o700) == nil {
		err = deed()
	}
	return err
}
