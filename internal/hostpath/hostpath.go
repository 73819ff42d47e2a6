// Package hostpath confines paths of the host that a client names.
package hostpath

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// ErrOutside is matched by errors for paths that clients must not name.
var ErrOutside = errdefs.ErrInvalidArgument.WithMessage("must lie below an allowed directory")

// Dirs are the directories that clients' paths must lie below. They exist.
type Dirs []string

// Open opens the directory that path lies below, and returns the rest of the path. A file that is opened through both
// lies there too, whatever links there are. The caller closes the directory.
func (d Dirs) Open(path string) (*os.Root, string, error) {
	for _, dir := range d {
		name, err := filepath.Rel(dir, path)
		if err != nil || !filepath.IsAbs(path) || name == "." || !filepath.IsLocal(name) {
			continue
		}
		root, err := os.OpenRoot(dir)
		return root, name, err
	}
	return nil, "", fmt.Errorf("%q: %w (%s)", path, ErrOutside, strings.Join(d, ", "))
}

// Check checks a path that will be opened later.
func (d Dirs) Check(path string) error {
	root, _, err := d.Open(path)
	if err != nil {
		return err
	}
	return root.Close()
}

// OpenLog opens a log file for appending, and creates it and its directory.
func (d Dirs) OpenLog(path string) (*os.File, error) {
	root, name, err := d.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return f, nil
}
