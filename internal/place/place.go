// Package place opens directories and files of the host that a client names for a pod, and creates missing ones. It
// checks their real place before it creates anything. A file system that does not answer cannot block the caller.
package place

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Rules define the places that no pod gets. They always include the file systems of the host's kernel.
type Rules struct {
	Own []string // Bulkhead's directories
	// Except is a directory in one of them that pods may get, with a path without links; empty means none.
	Except string
}

// The errors for places that no pod gets. For missing files and permissions, errors match the kernel's own.
var (
	ErrPath   = errors.New("not an absolute path")
	ErrPart   = errors.New("must be a path inside the directory")
	ErrOwn    = errors.New("which is Bulkhead's own")
	ErrKernel = errors.New("a pod has a kernel of its own")
	ErrKind   = errors.New("a pod can have directories and regular files of the host")
	ErrMoved  = errors.New("a link has come into it")
	ErrBare   = errors.New("its file system is not mounted any more")
)

// Missing says what to do if a place is missing.
type Missing int

// Fail returns an error that matches os.ErrNotExist. MakeDir creates a directory, with its parents. MakeFile creates an
// empty file, in an existing directory.
const (
	Fail Missing = iota
	MakeDir
	MakeFile
)

// OpenOptions are the options of Rules.Open.
type OpenOptions struct {
	// Part is a path below the place. No link may lead out of the place. Missing directories in it are created, unless
	// Whole is set.
	Part    string
	Whole   bool
	Missing Missing
	// Exact refuses, with ErrMoved, a path that has a link in it.
	Exact bool
	// Mount refuses, with ErrBare, a path without a file system mounted there or below; empty allows any.
	Mount string
}

// Place is a directory or file of the host that a pod may have. Its file is opened with O_PATH.
type Place struct {
	*os.File
	// Path is its path, without links.
	Path string
	// Mount is the mount point of its file system.
	Mount string
	// Directory is true for a directory.
	Directory bool
	// Masks are the directories below it that no pod gets, as relative paths.
	Masks []string
}

// open opens a place, without a time limit.
func (r Rules) open(path string, how OpenOptions) (*Place, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("host path %.200q is %w", path, ErrPath)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && how.Missing != Fail {
		fd, err = r.create(path, how.Missing)
	}
	if err != nil {
		return nil, fmt.Errorf("host path %.200q: %w", path, err)
	}
	p, err := r.approve(fd, path)
	if err != nil {
		return nil, err
	}
	if how.Exact && p.Path != path {
		p.Close()
		return nil, fmt.Errorf("host path %.200q leads to %.200q now: %w", path, p.Path, ErrMoved)
	}
	if how.Mount != "" && !within(how.Mount, p.Mount) {
		p.Close()
		return nil, fmt.Errorf("host path %.200q was below %.200q: %w", path, how.Mount, ErrBare)
	}
	if how.Part == "" {
		return p, nil
	}
	defer p.Close()
	if fd, err = r.openPart(int(p.Fd()), how.Part, !how.Whole); err != nil {
		return nil, fmt.Errorf("part %.200q of host path %.200q: %w", how.Part, path, err)
	}
	return r.approve(fd, path)
}

// approve finds out where a descriptor's file is, and refuses places that no pod gets. It owns the descriptor.
func (r Rules) approve(fd int, path string) (*Place, error) {
	p := &Place{File: os.NewFile(uintptr(fd), path)}
	err := r.inspect(p, path)
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (r Rules) inspect(p *Place, path string) (err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(p.Fd()), &st); err != nil {
		return fmt.Errorf("host path %.200q: %w", path, err)
	}
	kind := st.Mode & unix.S_IFMT
	if p.Directory = kind == unix.S_IFDIR; !p.Directory && kind != unix.S_IFREG {
		return fmt.Errorf("host path %.200q is %s: %w", path, kindName(kind), ErrKind)
	}
	if p.Path, err = at(int(p.Fd())); err != nil {
		return fmt.Errorf("host path %.200q: %w", path, err)
	}
	all, err := mounts()
	if err == nil {
		p.Mount, err = mountOf(int(p.Fd()), all)
	}
	if err != nil {
		return fmt.Errorf("host path %.200q: %w", path, err)
	}
	p.Masks, err = r.check(p.Path, path, all)
	return err
}

// check refuses places that no pod gets, and returns the directories to hide below; path is the client's name for the
// place.
func (r Rules) check(where, path string, all []mount) (masks []string, err error) {
	own := r.ownDirs()
	for _, hidden := range slices.Concat(own, kernelMounts(all)) {
		switch below, ok := beneath(where, hidden); {
		case ok:
			masks = append(masks, below)
		case r.Except != "" && within(r.Except, where) && within(hidden, r.Except):
		case within(hidden, where) && slices.Contains(own, hidden):
			return nil, fmt.Errorf("host path %.200q lies in %s, %w", path, hidden, ErrOwn)
		case within(hidden, where):
			return nil, fmt.Errorf("host path %.200q belongs to the host's kernel: %w", path, ErrKernel)
		}
	}
	return masks, nil
}

// Private reports whether a path without links lies in one of Bulkhead's directories.
func (r Rules) Private(path string) bool {
	return slices.ContainsFunc(r.ownDirs(), func(own string) bool { return within(own, path) })
}

// ownDirs returns Bulkhead's directories at their real places. A missing one is taken as named.
func (r Rules) ownDirs() []string {
	dirs := slices.Clone(r.Own)
	for i, dir := range dirs {
		if at, err := filepath.EvalSymlinks(dir); err == nil {
			dirs[i] = at
		}
	}
	return dirs
}

// at returns the path of a descriptor.
func at(fd int) (string, error) { return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) }

func kindName(kind uint32) string {
	switch kind {
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFIFO:
		return "a FIFO"
	}
	return "a device"
}

// beneath returns path relative to dir, if it lies strictly below.
func beneath(dir, path string) (string, bool) {
	below, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	return below, ok && below != ""
}

// within reports whether path is dir or lies below it.
func within(dir, path string) bool {
	_, below := beneath(dir, path)
	return below || dir == path
}
