// Package tree packs files of this machine into a tar stream, and unpacks one
// that comes from a pod, whose every byte may be hostile.
package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Pack writes source, a file or a directory with what is in it, to w as a tar
// stream whose names begin with agentv1.TreeBase(source). Symbolic links are
// followed for source itself only. Files that are neither regular nor
// directories nor links are left out, and told to note.
func Pack(w io.Writer, source string, note func(string)) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	p := &packer{tar: tar.NewWriter(w), note: note, links: map[[2]uint64]string{}}
	if err := p.entry(source, agentv1.TreeBase(source), info); err != nil {
		return fmt.Errorf("copy %s: %w", source, err)
	}
	if err := p.tar.Close(); err != nil {
		return fmt.Errorf("copy %s: %w", source, err)
	}
	return nil
}

type packer struct {
	tar   *tar.Writer
	note  func(string)
	links map[[2]uint64]string // names of files that have several
}

// entry writes the file at path, and what is below it, under name.
func (p *packer) entry(file, name string, info fs.FileInfo) error {
	h := &tar.Header{Format: tar.FormatPAX, Name: name, Mode: int64(unixMode(info.Mode())), ModTime: info.ModTime()}
	switch kind := info.Mode().Type(); {
	case kind.IsRegular():
		return p.file(file, h, info)
	case kind.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := p.tar.WriteHeader(h); err != nil {
			return err
		}
		return p.dir(file, name)
	case kind&fs.ModeSymlink != 0:
		target, err := os.Readlink(file)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return p.tar.WriteHeader(h)
	default:
		p.note(fmt.Sprintf("left out %s: it is neither a file nor a directory nor a link", file))
		return nil
	}
}

func (p *packer) dir(file, name string) error {
	children, err := os.ReadDir(file)
	if err != nil {
		return err
	}
	for _, child := range children {
		info, err := child.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has vanished
		}
		if err == nil {
			err = p.entry(filepath.Join(file, child.Name()), name+"/"+child.Name(), info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) file(file string, h *tar.Header, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		id := [2]uint64{st.Dev, st.Ino}
		if first := p.links[id]; first != "" {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return p.tar.WriteHeader(h)
		}
		p.links[id] = h.Name
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	if n, err := io.CopyN(p.tar, f, h.Size); errors.Is(err, io.EOF) {
		return fmt.Errorf("%s has become shorter while it was read: %d bytes of %d", file, n, h.Size)
	} else if err != nil {
		return err
	}
	return nil
}

// unixMode is a mode as tar has it.
func unixMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	for bit, value := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			mode |= value
		}
	}
	return mode
}
