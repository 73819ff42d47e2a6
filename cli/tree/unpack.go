package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The bounds of what Unpack takes.
const (
	MaxEntries = 1 << 20
	MaxBytes   = 64 << 30 // of all files together
	maxName    = 4096
	maxDepth   = 200
	maxNotes   = 100
)

// ErrHostile is matched by Unpack's error for a stream that no honest pod sends:
// names that lead out of the tree, several roots, more than the bounds.
var ErrHostile = errors.New("invalid copy stream")

// Unpack makes the one tree of a tar stream, whose names begin with base (see
// Base: what was asked for, and no choice of the pod's), at target: in it, if it
// is a directory, and else as it; a file alone is written to what a link leads to, a
// device or a pipe (/dev/stdout). Missing directories above are made. It writes below
// target only and through no symbolic link there; files and links that are in the way
// are replaced, devices and the like are not. Left out, and told to note, are devices and the like, and
// symbolic links that lead out of the tree: whoever follows them later would be
// led by the pod. Permissions and times are kept, but no set-user-id.
func Unpack(r io.Reader, target, base string, note func(string)) (err error) {
	u := &unpacker{tar: tar.NewReader(r), base: base, note: atMost(maxNotes, note)}
	if err := u.open(target); err != nil {
		return fmt.Errorf("copy to %s: %w", target, err)
	}
	if u.root != nil {
		defer u.root.Close()
	}
	if err := u.run(); err != nil {
		return fmt.Errorf("copy to %s: %w", target, err)
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(r, 1<<20)); err != nil { // tar's padding
		return fmt.Errorf("copy to %s: %w", target, err)
	}
	return nil
}

// atMost passes on so many notes, and then that there are more.
func atMost(n int, note func(string)) func(string) {
	return func(text string) {
		switch n--; {
		case n >= 0:
			note(text)
		case n == -1:
			note("more files were left out")
		}
	}
}

type unpacker struct {
	tar    *tar.Reader
	note   func(string)
	root   *os.Root
	sink   string // instead of root: the file is written to what is there
	rename string // what becomes of the tree's base, empty if nothing
	base   string // that every name begins with

	entries int
	bytes   int64
	parent  string // the last one that was looked at
	dirs    []dir  // that are being filled
}

// dir gets its mode and time when all that is in it is there.
type dir struct {
	name string
	mode fs.FileMode
	time time.Time
}

// open finds where the tree goes.
func (u *unpacker) open(target string) (err error) {
	info, err := os.Stat(target)
	switch {
	case err == nil && info.IsDir():
		u.root, err = os.OpenRoot(target)
		return err
	case err == nil && !isFile(target):
		u.sink, u.rename = target, filepath.Base(target)
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case strings.HasSuffix(target, "/") || strings.HasSuffix(target, "/.") || filepath.Base(target) == "..":
		return fmt.Errorf("%w: create the directory first", &fs.PathError{Op: "open", Path: target, Err: fs.ErrNotExist})
	}
	above := filepath.Dir(target)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return err
	}
	u.rename = filepath.Base(target)
	u.root, err = os.OpenRoot(above)
	return err
}

// isFile tells whether a path is a regular file itself, and no link.
func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// pour writes the file that h begins to the sink.
func (u *unpacker) pour(h *tar.Header) error {
	if h.Typeflag != tar.TypeReg || u.entries > 1 {
		return fmt.Errorf("%s is in the way: it is not a directory", u.sink)
	}
	// A pipe that nobody reads is an error, and no wait.
	f, err := os.OpenFile(u.sink, os.O_WRONLY|os.O_TRUNC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, u.tar)
	return errors.Join(err, f.Close())
}

func (u *unpacker) run() error {
	for {
		h, err := u.tar.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the stream: %w", err)
		}
		if u.entries++; u.entries > MaxEntries {
			return fmt.Errorf("%w: more than %d files (- takes any number as a tar stream)", ErrHostile, MaxEntries)
		}
		name, err := u.place(h.Name)
		if err == nil && u.sink != "" {
			err = u.pour(h)
		} else if err == nil {
			if err = u.finish(name); err == nil {
				err = u.put(name, h)
			}
		}
		if err != nil {
			return fmt.Errorf("%.200q: %w", h.Name, err)
		}
	}
	if u.entries == 0 {
		return fmt.Errorf("%w: it is empty", ErrHostile)
	}
	if u.sink != "" {
		return nil
	}
	return u.finish("")
}

// place is where an entry goes below the root; "." is the root itself.
func (u *unpacker) place(raw string) (string, error) {
	name := strings.TrimSuffix(raw, "/")
	switch {
	case name == "" || len(name) > maxName || strings.ContainsRune(name, 0) || strings.Count(name, "/") > maxDepth:
		return "", fmt.Errorf("%w: invalid name", ErrHostile)
	case strings.Contains("/"+name+"/", "/../") || strings.Contains("/"+name+"/", "//"):
		return "", fmt.Errorf("%w: its name leads out of the tree", ErrHostile)
	}
	base, rest, _ := strings.Cut(name, "/")
	if base != u.base {
		return "", fmt.Errorf("%w: its name is in another tree", ErrHostile)
	}
	if u.rename != "" {
		base = u.rename
	}
	return path.Join(base, rest), nil
}

func (u *unpacker) put(name string, h *tar.Header) error {
	if name == "." {
		return nil // the target itself stays as it is
	}
	if err := u.real(path.Dir(name)); err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(name, mode, h.ModTime)
	case tar.TypeReg:
		return u.file(name, mode, h)
	case tar.TypeSymlink:
		if !inside(name, h.Linkname, u.rename != "" || u.base != ".") {
			u.note(fmt.Sprintf("left out the link %.200q: it leads out of the copy, to %.200q", h.Name, h.Linkname))
			return nil
		}
		if err := u.clear(name); err != nil {
			return err
		}
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return u.link(name, h.Linkname)
	}
	if u.entries == 1 {
		return errNoTree
	}
	u.note(fmt.Sprintf("left out %.200q: it is neither a file nor a directory nor a link", h.Name))
	return nil
}

// real makes sure that name is a directory and no link, and that so is all above
// it; what is missing is made.
func (u *unpacker) real(name string) error {
	if name == "." || name == u.parent {
		return nil
	}
	if err := u.real(path.Dir(name)); err != nil {
		return err
	}
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = u.root.Mkdir(name, 0o755)
	} else if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is in the way: it is not a directory", filepath.Join(u.root.Name(), name))
	}
	if err == nil {
		u.parent = name
	}
	return err
}

func (u *unpacker) dir(name string, mode fs.FileMode, at time.Time) error {
	u.parent = ""
	if err := u.real(name); err != nil {
		return err
	}
	u.dirs = append(u.dirs, dir{name, mode, at})
	return nil
}

// finish sets the modes of the directories that next is not in.
func (u *unpacker) finish(next string) error {
	for len(u.dirs) > 0 {
		d := u.dirs[len(u.dirs)-1]
		if strings.HasPrefix(next, d.name+"/") {
			return nil
		}
		u.dirs = u.dirs[:len(u.dirs)-1]
		// Looked at again: the stream may have put something else there.
		if info, err := u.root.Lstat(d.name); err != nil || !info.IsDir() {
			continue
		}
		if err := errors.Join(u.root.Chmod(d.name, d.mode), u.root.Chtimes(d.name, d.time, d.time)); err != nil {
			return err
		}
	}
	return nil
}

// clear removes a file or a link that is in the way; what is anything else stays.
func (u *unpacker) clear(name string) error {
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch info.Mode().Type() {
	case 0, fs.ModeSymlink:
		return u.root.Remove(name)
	case fs.ModeDir:
		return fmt.Errorf("%s is in the way: it is a directory", filepath.Join(u.root.Name(), name))
	}
	return fmt.Errorf("%s is in the way: it is a device, a pipe or a socket", filepath.Join(u.root.Name(), name))
}

func (u *unpacker) file(name string, mode fs.FileMode, h *tar.Header) error {
	if h.Size > MaxBytes-u.bytes {
		return fmt.Errorf("%w: more than %d GiB (- takes any size as a tar stream)", ErrHostile, MaxBytes>>30)
	}
	u.bytes += h.Size
	if err := u.clear(name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, u.tar)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

// link makes another name of a regular file that came before.
func (u *unpacker) link(name, first string) error {
	old, err := u.place(first)
	if err != nil {
		return err
	}
	if err := u.real(path.Dir(old)); err != nil {
		return err
	}
	info, err := u.root.Lstat(old)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: a hard link to something that is not a file", ErrHostile)
	}
	if old == name {
		return nil
	}
	if err := u.clear(name); err != nil {
		return err
	}
	return u.root.Link(old, name)
}

// inside tells whether a symbolic link at name stays in the tree, wherever the
// tree is moved: it is relative, goes up only at its beginning, for going up
// later may lead through another link, and not above the tree's own root.
func inside(name, target string, named bool) bool {
	if target == "" || len(target) > maxName || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return false
	}
	depth := strings.Count(name, "/") // directories of the tree above it
	if named && depth > 0 {
		depth-- // the tree's root is the first of them
	} else if named {
		return false // the tree is this link alone
	}
	down := false
	for _, part := range strings.Split(target, "/") {
		switch {
		case part == "..":
			if depth--; down || depth < 0 {
				return false
			}
		case part != "" && part != ".":
			down = true
		}
	}
	return true
}
