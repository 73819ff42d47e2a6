// Package tree sends a tree of a container's files to the host, and writes one that the host sends. The container may
// change its files meanwhile, so each step opens the next file from an open directory. The host's names are not trusted
// to stay below the destination.
package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/wholefile"
)

const (
	// maxDepth bounds the nesting of directories in a tree. The agent holds one open descriptor for each level.
	maxDepth = 200
	// maxLinks bounds the number of remembered files with several hard links. Each name of a further file is sent as a
	// separate file.
	maxLinks = 64 << 10
)

// InRoot resolves name within root, as a process of the container would, and opens it with O_PATH. The error matches
// errdefs.ErrNotFound if the path does not exist.
func InRoot(root *os.File, name string, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(root.Fd()), name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		err = &os.PathError{Op: "open", Path: name, Err: err}
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errdefs.ErrNotFound, err)
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Pack sends a file, or a directory with everything below it, as a series of entries. The last entry is KindEnd. It
// carries the error of the first file that could not be sent whole.
func Pack(s *agentv1.Stream, root *os.File, path string) error {
	if path == "" || len(path) > agentv1.MaxName {
		return fmt.Errorf("path %.80q: %w", path, errdefs.ErrInvalidArgument)
	}
	place, err := InRoot(root, path, 0)
	if err != nil {
		return err
	}
	defer place.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(place.Fd()), &st); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return fmt.Errorf("%s is %s: %w", path, special(kind), errdefs.ErrInvalidArgument)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && wholefile.Kernel(place) {
		return fmt.Errorf("%s is a directory of the kernel; copy single files of it, or read it with a command: %w", path,
			errdefs.ErrInvalidArgument)
	}
	if err := s.Reply(nil); err != nil {
		return err
	}
	p := &packer{w: s.Conn, links: map[fileID]string{}, buf: make([]byte, agentv1.MaxChunk)}
	end := agentv1.Entry{Kind: agentv1.KindEnd}
	if err := p.entry(place, agentv1.TreeBase(path), &st, 0); err != nil {
		if p.failed {
			return nil // no end can be sent on a broken stream
		}
		end.Error = agentv1.ToError(err)
	} else if p.lacking != nil {
		end.Error = agentv1.ToError(p.lacking)
	}
	return agentv1.WriteEntry(s.Conn, end)
}

type fileID struct{ dev, ino uint64 }

// packer writes the entries of a tree.
type packer struct {
	w io.Writer
	// failed means that the stream is broken: a write has failed, or a file could not be read after its length was
	// sent.
	failed bool
	links  map[fileID]string // the first name of each file with several hard links
	buf    []byte
	// lacking is the error of the first file that became shorter while it was read.
	lacking error
}

func (p *packer) write(e agentv1.Entry) error {
	err := agentv1.WriteEntry(p.w, e)
	p.failed = p.failed || err != nil
	return err
}

func (p *packer) skip(name, why string) error {
	return p.write(agentv1.Entry{Kind: agentv1.KindSkipped, Name: []byte(name), Target: []byte(why)})
}

// entry writes the file place (O_PATH) and everything below it.
func (p *packer) entry(place *os.File, name string, st *unix.Stat_t, depth int) error {
	e := agentv1.Entry{Name: []byte(name), Mode: st.Mode & 0o7777, MTime: st.Mtim.Nano()}
	switch kind := st.Mode & unix.S_IFMT; kind {
	case unix.S_IFREG:
		return p.file(place, e, st)
	case unix.S_IFDIR:
		e.Kind = agentv1.KindDir
		if err := p.write(e); err != nil {
			return err
		}
		return p.dir(place, name, depth)
	case unix.S_IFLNK:
		target := make([]byte, agentv1.MaxName+1)
		n, err := unix.Readlinkat(int(place.Fd()), "", target)
		if err != nil {
			return p.skip(name, err.Error())
		}
		e.Kind, e.Target = agentv1.KindSymlink, target[:min(n, agentv1.MaxName)]
		return p.write(e)
	default:
		return p.skip(name, special(kind))
	}
}

// special describes a type of file that is not copied, for messages.
func special(kind uint32) string {
	switch kind {
	case unix.S_IFIFO:
		return "a pipe"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	}
	return "neither a file, a directory nor a link"
}

// file writes a regular file with the length st.Size. If the file grows meanwhile, the new part is not sent. If it
// becomes shorter, zeros fill the gap and the tree's end carries an error.
func (p *packer) file(place *os.File, e agentv1.Entry, st *unix.Stat_t) error {
	name, id := string(e.Name), fileID{st.Dev, st.Ino}
	if first := p.links[id]; first != "" {
		e.Kind, e.Target = agentv1.KindLink, []byte(first)
		return p.write(e)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", place.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return p.skip(name, err.Error())
	}
	defer f.Close()
	content, whole, err := wholefile.Start(f, st.Size)
	if err != nil {
		return p.skip(name, err.Error())
	}
	if st.Nlink > 1 && len(p.links) < maxLinks {
		p.links[id] = name
	}
	var in io.Reader = f
	if e.Kind, e.Size = agentv1.KindFile, st.Size; whole {
		in, e.Size = bytes.NewReader(content), int64(len(content))
	}
	if err := p.write(e); err != nil {
		return err
	}
	for left := e.Size; left > 0; {
		piece := p.buf[:min(left, int64(len(p.buf)))]
		n, err := io.ReadFull(in, piece)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			// The entry promises more bytes than can be read, so the stream is broken.
			p.failed = true
			return fmt.Errorf("read %s: %w", name, err)
		}
		if err != nil && p.lacking == nil {
			p.lacking = fmt.Errorf("%s became shorter while it was read, and its copy has zeros at the end", name)
		}
		clear(piece[n:])
		if _, err := p.w.Write(piece); err != nil {
			p.failed = true
			return err
		}
		left -= int64(len(piece))
	}
	return nil
}

// dir writes the files in a directory. It ignores files that vanish meanwhile.
func (p *packer) dir(place *os.File, name string, depth int) error {
	if depth >= maxDepth {
		return p.skip(name, "its files are nested too deep")
	}
	if wholefile.Kernel(place) {
		return p.skip(name, "it is a directory of the kernel")
	}
	fd, err := unix.Openat(int(place.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return p.skip(name, err.Error())
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(256)
		for _, child := range names {
			if err := p.child(dir, name, child, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return p.skip(name, err.Error())
		}
	}
}

func (p *packer) child(dir *os.File, parent, child string, depth int) error {
	name := parent + "/" + child
	if len(name) > agentv1.MaxName {
		return p.skip(name[:agentv1.MaxName], "its name is too long")
	}
	fd, err := unix.Openat(int(dir.Fd()), child, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return p.skip(name, err.Error())
	}
	place := os.NewFile(uintptr(fd), name)
	defer place.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return p.skip(name, err.Error())
	}
	return p.entry(place, name, &st, depth+1)
}
