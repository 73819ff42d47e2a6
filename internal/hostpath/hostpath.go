// Package hostpath confines paths of the host that a client names.
package hostpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrOutside is matched by errors of paths that clients may not name.
var ErrOutside = errors.New("must lie below an allowed directory")

// Dirs are the directories below which clients' paths lie. They exist.
type Dirs []string

// Open opens the one of the directories that path lies below, and returns the path
// from there: what is opened by it lies there too, whatever links there are. The
// caller closes the directory.
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

// Check checks a path that is opened later.
func (d Dirs) Check(path string) error {
	root, _, err := d.Open(path)
	if err != nil {
		return err
	}
	return root.Close()
}

// OpenLog opens a log file for appending, and makes it and its directory.
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
