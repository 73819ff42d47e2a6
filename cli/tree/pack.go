// Package tree packs files of the host into a tar stream, and unpacks tar streams that come from a pod. Every byte
// from a pod may be hostile.
package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/wholefile"
)

// Pack writes source, a file or a directory with its contents, to w as a tar stream. The names in it begin with
// agentv1.TreeBase(source). Symbolic links are followed only for source itself, so that changes to the tree during
// the copy cannot add files from outside. Files other than regular files, directories and links are left out and
// reported to note.
func Pack(w io.Writer, source string, note func(string)) error {
	p := &packer{tar: tar.NewWriter(w), note: note, links: map[[2]uint64]string{}}
	if err := p.source(source); err != nil {
		return fmt.Errorf("copy %s: %w", source, err)
	}
	if err := p.tar.Close(); err != nil {
		return fmt.Errorf("copy %s: %w", source, err)
	}
	return nil
}

type packer struct {
	tar   *tar.Writer
	root  *os.Root // the packed directory
	base  string   // its name in the stream
	note  func(string)
	links map[[2]uint64]string // names of files that have several links
}

// source writes the file or directory that Pack was called with.
func (p *packer) source(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	p.base = agentv1.TreeBase(name)
	if info.IsDir() {
		if p.root, err = os.OpenRoot(name); err != nil {
			return err
		}
		defer p.root.Close()
		return p.entry(".", info)
	}
	if !info.Mode().IsRegular() {
		return errNoTree
	}
	f, err := os.OpenFile(name, readOnly, 0)
	if err != nil {
		return err
	}
	return p.file(f, name, p.base)
}

// errNoTree means that the source is a device, a pipe or a socket.
var errNoTree = errors.New("it is neither a file nor a directory")

// readOnly does not wait for the other end of a pipe.
const readOnly = os.O_RDONLY | syscall.O_NONBLOCK

// entry writes the file at a path below the root and everything below it.
func (p *packer) entry(file string, info fs.FileInfo) error {
	name := p.base
	if file != "." {
		name += "/" + file
	}
	switch kind := info.Mode().Type(); {
	case kind.IsRegular():
		f, err := p.root.OpenFile(file, readOnly, 0)
		if err != nil {
			return err
		}
		return p.file(f, file, name)
	case kind.IsDir():
		h := header(name+"/", info)
		h.Typeflag = tar.TypeDir
		if err := p.tar.WriteHeader(h); err != nil {
			return err
		}
		return p.dir(file)
	case kind&fs.ModeSymlink != 0:
		target, err := p.root.Readlink(file)
		if err != nil {
			return err
		}
		h := header(name, info)
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return p.tar.WriteHeader(h)
	}
	p.noteSkipped(file)
	return nil
}

func (p *packer) noteSkipped(file string) {
	p.note(fmt.Sprintf("left out %s: it is neither a file nor a directory nor a link", file))
}

func header(name string, info fs.FileInfo) *tar.Header {
	return &tar.Header{Format: tar.FormatPAX, Name: name, Mode: int64(unixMode(info.Mode())), ModTime: info.ModTime()}
}

func (p *packer) dir(file string) error {
	d, err := p.root.OpenFile(file, readOnly, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if wholefile.Kernel(d) {
		if file == "." {
			return errors.New("its files are the kernel's; copy single files")
		}
		p.note(fmt.Sprintf("left out the files in %s: they are the kernel's", file))
		return nil
	}
	children, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	d.Close()
	slices.Sort(children)
	for _, child := range children {
		below := path.Join(file, child)
		info, err := p.root.Lstat(below)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has vanished
		}
		if err == nil {
			err = p.entry(below, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// file writes f and closes it.
func (p *packer) file(f *os.File, file, name string) error {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		p.noteSkipped(file)
		return nil
	}
	h := header(name, info)
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		id := [2]uint64{st.Dev, st.Ino}
		if first := p.links[id]; first != "" {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return p.tar.WriteHeader(h)
		}
		p.links[id] = name
	}
	content, whole, err := wholefile.Start(f, info.Size())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var in io.Reader = f
	if h.Typeflag, h.Size = tar.TypeReg, info.Size(); whole {
		in, h.Size = bytes.NewReader(content), int64(len(content))
	}
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	if n, err := io.CopyN(p.tar, in, h.Size); errors.Is(err, io.EOF) {
		return fmt.Errorf("%s has become shorter while it was read: %d bytes of %d", file, n, h.Size)
	} else if err != nil {
		return err
	}
	return nil
}

// unixMode converts a mode to the form of tar.
func unixMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	for bit, value := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			mode |= value
		}
	}
	return mode
}
