package layer

import (
	"fmt"
	"strings"

	"github.com/bulkhead-project/bulkhead/image/erofs"
)

// components cleans a name from a layer. The name is resolved as if chrooted, so neither ".." nor a leading slash leads
// out.
func components(name string) ([]string, error) {
	if len(name) > maxPath {
		return nil, fmt.Errorf("%w: path of %d bytes", ErrHostile, len(name))
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			parts = parts[:max(0, len(parts)-1)]
		case len(part) > maxName || strings.ContainsRune(part, 0):
			return nil, fmt.Errorf("%w: bad name %.64q", ErrHostile, part)
		default:
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// walker goes from directory to directory and never leaves the root.
type walker struct {
	stack  []*erofs.Inode // the way from the root to here
	budget *budget
	hops   int
	// missing creates an implied directory. If it is nil, a missing directory is refused.
	missing func(dir *erofs.Inode, name string) *erofs.Inode
	// passed, if not nil, is called for every entry on the way.
	passed func(*erofs.Entry)
}

// push goes down into a directory, no deeper than a path of maxPath bytes can name: chains of symbolic links could
// lead to any depth.
func (w *walker) push(dir *erofs.Inode) error {
	if len(w.stack) > maxPath/2 {
		return fmt.Errorf("%w: directories too deep", ErrHostile)
	}
	w.stack = append(w.stack, dir)
	return nil
}

// walk follows parts, symbolic links included, to a directory. It returns nil if there is none and missing is nil.
func (w *walker) walk(parts []string) (*erofs.Inode, error) {
	for len(parts) > 0 {
		if err := w.budget.step(1); err != nil {
			return nil, err
		}
		here := w.stack[len(w.stack)-1]
		part := parts[0]
		parts = parts[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			w.stack = w.stack[:max(1, len(w.stack)-1)]
			continue
		}
		entry := here.Entries[part]
		if entry == nil {
			if w.missing == nil {
				return nil, nil
			}
			if len(part) > maxName {
				return nil, fmt.Errorf("%w: bad name %.64q", ErrHostile, part)
			}
			if err := w.push(w.missing(here, part)); err != nil {
				return nil, err
			}
			continue
		}
		if w.passed != nil {
			w.passed(entry)
		}
		switch {
		case entry.Inode.IsDir():
			if err := w.push(entry.Inode); err != nil {
				return nil, err
			}
		case entry.Inode.IsSymlink():
			if w.hops++; w.hops > maxHops {
				return nil, fmt.Errorf("%w: too many symbolic links", ErrHostile)
			}
			target := entry.Inode.Target
			if strings.HasPrefix(target, "/") {
				w.stack = w.stack[:1]
			}
			parts = append(strings.Split(target, "/"), parts...)
			if len(parts) > 2*maxPath {
				return nil, fmt.Errorf("%w: too many symbolic links", ErrHostile)
			}
		case w.missing == nil:
			return nil, nil
		default:
			return nil, fmt.Errorf("%w: %.64q on the way is not a directory", ErrHostile, part)
		}
	}
	return w.stack[len(w.stack)-1], nil
}
