package layer

import (
	"fmt"
	"strings"

	"github.com/bulkhead-project/bulkhead/image/erofs"
)

// The markers of the OCI image specification.
const (
	whiteoutPrefix = ".wh."
	metaPrefix     = ".wh..wh."
	opaqueMarker   = ".wh..wh..opq"
)

// whiteout applies the marker called base in dir. It hides only entries of lower layers, wherever the marker stands in
// this layer.
func (t *Tree) whiteout(dir *erofs.Inode, base string) error {
	if base == opaqueMarker {
		return t.prune(dir)
	}
	if strings.HasPrefix(base, metaPrefix) {
		return nil // AUFS's own bookkeeping
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("%w: bad whiteout %.64q", ErrHostile, base)
	}
	entry := dir.Entries[name]
	switch {
	case entry == nil:
	case entry.Tag != t.layer:
		delete(dir.Entries, name)
	case entry.Inode.IsDir():
		// This layer has a directory of that name. It replaces the one below instead of merging with it.
		return t.prune(entry.Inode)
	}
	return nil
}

// prune removes entries of lower layers from dir, at every depth.
func (t *Tree) prune(dir *erofs.Inode) error {
	if err := t.budget.step(len(dir.Entries)); err != nil {
		return err
	}
	for name, entry := range dir.Entries {
		if entry.Tag != t.layer {
			delete(dir.Entries, name)
		} else if entry.Inode.IsDir() {
			if err := t.prune(entry.Inode); err != nil {
				return err
			}
		}
	}
	return nil
}
