// Package layer merges the layers of an image, each a tar stream, into one tree of EROFS inodes, with whiteouts, opaque
// directories and hard links across layers. Every byte of a layer is treated as hostile.
package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/bulkhead-project/bulkhead/image/erofs"
)

// Tree is an image's file system. Its layers are applied lowest first. It is not safe for concurrent use.
type Tree struct {
	Root   *erofs.Inode
	out    *erofs.Writer
	layer  int
	budget budget
}

// NewTree returns an empty tree that stores the content of files in out.
func NewTree(out *erofs.Writer, limits Limits) *Tree {
	return &Tree{Root: erofs.NewDir(0o755), out: out, budget: budget{limits: limits}}
}

// Apply applies the next layer, an uncompressed tar stream, to the tree, and reads it to its end. ErrHostile and
// erofs.ErrTooLarge concern the layer itself.
func (t *Tree) Apply(ctx context.Context, stream io.Reader) error {
	t.layer++
	limited := &io.LimitedReader{R: stream, N: t.budget.limits.Stream}
	defer func() { t.budget.limits.Stream = limited.N }()
	in := tar.NewReader(limited)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = t.entry(header, in)
			if err != nil {
				err = fmt.Errorf("entry %.255q: %w", header.Name, err)
			}
		}
		if err != nil {
			return t.overflow(limited, err)
		}
	}
	// Bytes after the end of the archive are part of the digest.
	if _, err := io.Copy(io.Discard, limited); err != nil {
		return err
	}
	return t.overflow(limited, nil)
}

// overflow returns an error of its own if the bound on the stream has ended it.
func (t *Tree) overflow(limited *io.LimitedReader, err error) error {
	if limited.N <= 0 {
		return fmt.Errorf("%w: the layers have more bytes than the limit", ErrHostile)
	}
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
		return fmt.Errorf("%w: %w", ErrHostile, err)
	}
	return err
}

func (t *Tree) entry(h *tar.Header, in io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if err := t.budget.entry(cost(h)); err != nil {
		return err
	}
	parts, err := components(h.Name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		if h.Typeflag != tar.TypeDir {
			return fmt.Errorf("%w: the root is not a directory", ErrHostile)
		}
		return setAttributes(t.Root, h)
	}
	dir, err := t.parent(parts[:len(parts)-1])
	if err != nil {
		return err
	}
	base := parts[len(parts)-1]
	if strings.HasPrefix(base, whiteoutPrefix) {
		return t.whiteout(dir, base)
	}
	old := dir.Entries[base]
	if h.Typeflag == tar.TypeDir && old != nil && old.Inode.IsDir() {
		old.Tag = t.layer
		return setAttributes(old.Inode, h)
	}
	node, err := t.inode(h, in)
	if err != nil {
		return err
	}
	dir.Entries[base] = &erofs.Entry{Inode: node, Tag: t.layer}
	return nil
}

// parent returns the directory of an entry. It creates a directory that no layer lists; a directory of a lower layer
// now belongs to this layer too.
func (t *Tree) parent(parts []string) (*erofs.Inode, error) {
	var err error
	w := t.walker()
	w.passed = func(e *erofs.Entry) {
		if e.Inode.IsDir() {
			e.Tag = t.layer
		}
	}
	w.missing = func(dir *erofs.Inode, name string) *erofs.Inode {
		made := erofs.NewDir(0o755)
		dir.Entries[name] = &erofs.Entry{Inode: made, Tag: t.layer}
		err = errors.Join(err, t.budget.entry(int64(len(name))+entryCost))
		return made
	}
	dir, walkErr := w.walk(parts)
	return dir, errors.Join(walkErr, err)
}

func (t *Tree) walker() walker {
	return walker{stack: []*erofs.Inode{t.Root}, budget: &t.budget}
}

// linked returns the inode that a hard link names. It does not follow the last component.
func (t *Tree) linked(name string) (*erofs.Inode, error) {
	parts, err := components(name)
	if err != nil || len(parts) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%w: bad hard link to %.255q", ErrHostile, name))
	}
	w := t.walker()
	dir, err := w.walk(parts[:len(parts)-1])
	if err != nil {
		return nil, err
	}
	if dir != nil {
		if e := dir.Entries[parts[len(parts)-1]]; e != nil && !e.Inode.IsDir() {
			return e.Inode, nil
		}
	}
	return nil, fmt.Errorf("%w: hard link to %.255q (must be an existing file)", ErrHostile, name)
}
