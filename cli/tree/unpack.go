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

// Bounds of a stream that Unpack accepts.
const (
	MaxEntries = 1 << 20
	MaxBytes   = 64 << 30 // of all files together
	maxName    = 4096
	maxDepth   = 200
	maxNotes   = 100
)

// ErrHostile is matched by Unpack's error for a stream that no honest pod sends: names that lead out of the tree,
// several roots, or exceeded bounds.
var ErrHostile = errors.New("invalid copy stream")

// Unpack unpacks the one tree of a tar stream at target. All names in the stream must begin with base (see
// agentv1.TreeBase), which depends on the request and not on the pod. If target is a directory, the tree goes into
// it; otherwise the tree becomes target. A single file is written to the target of a link, to a device or to a pipe
// (/dev/stdout). Missing parent directories are created.
//
// Unpack writes only below target and through no symbolic link there. It replaces files and links that are in the
// way, but not devices and the like. It leaves out devices, and symbolic links that lead out of the tree, and
// reports them to note: the pod could mislead a later reader through them. Permissions and times are kept,
// set-user-id bits are not.
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

// atMost passes on the first n notes, then one note that more were left out.
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
	sink   string // used instead of root: the file is written to this existing target
	rename string // the new name of the tree's base, empty to keep it
	base   string // the first part of every name

	entries int
	bytes   int64
	parent  string // the parent that was last checked
	dirs    []dir  // the directories being filled
}

// dir gets its mode and time when its contents are complete.
type dir struct {
	name string
	mode fs.FileMode
	time time.Time
}

// open determines where the tree goes.
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

// isFile reports whether path itself is a regular file, and not a link.
func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// writeToSink writes the file of header h to the sink.
func (u *unpacker) writeToSink(h *tar.Header) error {
	if h.Typeflag != tar.TypeReg || u.entries > 1 {
		return fmt.Errorf("%s is in the way: it is not a directory", u.sink)
	}
	// O_NONBLOCK: a pipe without a reader is an error instead of a wait.
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
			err = u.writeToSink(h)
		} else if err == nil {
			if err = u.finish(name); err == nil {
				err = u.extract(name, h)
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

// place returns the path of an entry below the root. "." is the root itself.
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

func (u *unpacker) extract(name string, h *tar.Header) error {
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

// real ensures that name and all its parents are directories and not links. It creates missing ones.
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

// finish sets the modes of the finished directories: those that do not contain next.
func (u *unpacker) finish(next string) error {
	for len(u.dirs) > 0 {
		d := u.dirs[len(u.dirs)-1]
		if strings.HasPrefix(next, d.name+"/") {
			return nil
		}
		u.dirs = u.dirs[:len(u.dirs)-1]
		// Checked again: the stream may have replaced it.
		if info, err := u.root.Lstat(d.name); err != nil || !info.IsDir() {
			continue
		}
		if err := errors.Join(u.root.Chmod(d.name, d.mode), u.root.Chtimes(d.name, d.time, d.time)); err != nil {
			return err
		}
	}
	return nil
}

// clear removes a file or a link that is in the way. Anything else is an error.
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

// link creates another name for a regular file that came earlier.
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

// inside reports whether a symbolic link at name stays in the tree wherever the tree is moved. The link must be
// relative. It may go up only at its beginning, because a later part may pass through another link, and not above
// the tree's root.
func inside(name, target string, named bool) bool {
	if target == "" || len(target) > maxName || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return false
	}
	depth := strings.Count(name, "/") // directories of the tree above it
	if named && depth > 0 {
		depth-- // the tree's root is the first of them
	} else if named {
		return false // the tree is only this link
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
