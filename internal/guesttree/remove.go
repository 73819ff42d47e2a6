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

// refills is how often a directory is emptied again in which another process goes on making files.
const refills = 16

// Remove removes what path names, with all that is below it. Nothing there is no error. It ends with
// ctx, and can be called again then, also by several at once. What cannot be removed stays, and the
// first reason is returned; what is mounted there is one (EBUSY, EXDEV). A tree deeper than MaxLevels is
// taken apart: what lies deeper is renamed to its top first. Directories whose modes keep their owner
// out are opened to him.
func Remove(ctx context.Context, path string) error {
	parent, err := os.Open(filepath.Dir(path)) // the caller's own
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

// remover removes one tree. The first of its levels is the directory that the tree is in.
type remover struct {
	levels []*doomed
	failed error // the first failure
}

// doomed is a directory of the tree.
type doomed struct {
	level
	name    string // in the level above
	seen    bool   // since it was read from its start: it is read until there is nothing
	moved   bool   // something was moved here since then
	stays   bool   // something in it could not be removed
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
		if !at.again() && !r.drop(at) {
			at.dir.Close()
			r.levels = r.levels[:len(r.levels)-1]
		}
	}
	return r.failed
}

// fail notes that something in at stays.
func (r *remover) fail(at *doomed, err error) {
	at.stays = true
	if r.failed == nil {
		r.failed = err
	}
}

// again has the directory read from its start once more, unless it is empty or the rest of it stays.
func (l *doomed) again() bool {
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

// drop removes a directory that is empty. It returns true if the directory is to be emptied once more.
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

// entry removes a file, or begins with a directory.
func (r *remover) entry(at *doomed, name string) {
	err := at.change(func() error { return unix.Unlinkat(at.fd, name, 0) })
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = r.directory(at, name, err)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		r.fail(at, fmt.Errorf("%q: %w", name, err))
	}
}

// directory begins with a directory, or removes or moves it where it is too deep. What is none could not
// be removed, for the reason undeletable.
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
		if enter(at.fd, name) != nil { // another's, which goes if it is empty
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

// move takes a directory to the top of the tree, where it is met again.
func (r *remover) move(at *doomed, name string) error {
	top := r.levels[1]
	var fresh [16]byte // the kernel's: clones of a guest share all others
	if _, err := unix.Getrandom(fresh[:], 0); err != nil {
		return err
	}
	rename := func() error { return unix.Renameat(at.fd, name, top.fd, fmt.Sprintf(".deep-%x", fresh)) }
	err := at.change(func() error { return top.change(rename) })
	if errors.Is(err, unix.EACCES) && enter(at.fd, name) == nil { // its .. changes too
		err = rename()
	}
	if err == nil {
		top.moved = true
	}
	return err
}

// rmdir removes a directory in l, which is empty.
func (l *doomed) rmdir(name string) error {
	return l.change(func() error { return unix.Unlinkat(l.fd, name, unix.AT_REMOVEDIR) })
}

// change does what changes a directory, if need be after its owner was let in.
func (l *doomed) change(deed func() error) error {
	err := deed()
	if errors.Is(err, unix.EACCES) && l.name != "" && unix.Fchmod(l.fd, 0o700) == nil {
		err = deed()
	}
	return err
}
