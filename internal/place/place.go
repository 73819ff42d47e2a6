// Package place opens directories and files of the host that a client names for a pod, and makes
// those that are missing. Where they really are is judged before anything is made there, and
// nothing that a file system does not answer keeps the caller.
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

// Rules say what no pod gets. Everything of the host's kernel is among that.
type Rules struct {
	Own []string // Bulkhead's directories
	// Except is a directory in one of them that pods do get, without a link in its path; empty is
	// none.
	Except string
}

// The errors of what no pod gets. That a path is not there, or not the caller's, is matched by
// the kernel's own errors.
var (
	ErrPath   = errors.New("not an absolute path")
	ErrPart   = errors.New("must be a path inside the directory")
	ErrOwn    = errors.New("which is Bulkhead's own")
	ErrKernel = errors.New("a pod has a kernel of its own")
	ErrKind   = errors.New("a pod can have directories and regular files of the host")
	ErrMoved  = errors.New("a link has come into it")
	ErrBare   = errors.New("its file system is not mounted any more")
)

// Missing says what is done where nothing is.
type Missing int

// Fail matches os.ErrNotExist. MakeDir makes a directory, with those above it. MakeFile makes an
// empty file, in a directory that is there.
const (
	Fail Missing = iota
	MakeDir
	MakeFile
)

// How says how a place is opened.
type How struct {
	// Part is below the path: no link leads from there out of what the path names. What is
	// missing of it are directories, which are made, unless the part has to be Whole.
	Part    string
	Whole   bool
	Missing Missing
	// Exact refuses, with ErrMoved, a path that has a link in it.
	Exact bool
	// Mount refuses, with ErrBare, a path that lies on no file system mounted there or below; empty is any.
	Mount string
}

// Place is a directory or file of the host that a pod may have. Its file is opened with O_PATH.
type Place struct {
	*os.File
	// Path is where it is, without links.
	Path string
	// Mount is where its file system is mounted.
	Mount string
	// Directory tells what it is.
	Directory bool
	// Masks are the directories below it that no pod gets, by their paths from there.
	Masks []string
}

// open opens a place, for as long as that takes.
func (r Rules) open(path string, how How) (*Place, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("host path %.200q is %w", path, ErrPath)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && how.Missing != Fail {
		fd, err = r.make(path, how.Missing)
	}
	if err != nil {
		return nil, fmt.Errorf("host path %.200q: %w", path, err)
	}
	p, err := r.judge(fd, path)
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
	return r.judge(fd, path)
}

// judge takes a descriptor over, finds out where it is, and refuses what no pod gets.
func (r Rules) judge(fd int, path string) (*Place, error) {
	p := &Place{File: os.NewFile(uintptr(fd), path)}
	err := r.look(p, path)
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (r Rules) look(p *Place, path string) (err error) {
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

// check refuses what lies where no pod's things lie, and tells what is to be hidden below it;
// path is what the client has named.
func (r Rules) check(where, path string, all []mount) (masks []string, err error) {
	own := r.own()
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

// Private tells whether a path without links lies among what is Bulkhead's own.
func (r Rules) Private(path string) bool {
	return slices.ContainsFunc(r.own(), func(own string) bool { return within(own, path) })
}

// own are Bulkhead's directories where they really are. One that is not there yet is where it
// would be.
func (r Rules) own() []string {
	dirs := slices.Clone(r.Own)
	for i, dir := range dirs {
		if at, err := filepath.EvalSymlinks(dir); err == nil {
			dirs[i] = at
		}
	}
	return dirs
}

// at is where a descriptor is.
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

// beneath is where path lies strictly below dir.
func beneath(dir, path string) (string, bool) {
	below, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	return below, ok && below != ""
}

// within tells whether path is dir or lies below it.
func within(dir, path string) bool {
	_, below := beneath(dir, path)
	return below || dir == path
}
