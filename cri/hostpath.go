package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bulkhead-project/bulkhead/api/annotations"
)

// hostPath opens the directory of Options.HostPaths that a client's path lies
// below, and returns the path from there: what is opened by it lies there too,
// whatever links there are. The caller closes the directory.
func (s *Service) hostPath(path string) (*os.Root, string, error) {
	for _, dir := range s.o.HostPaths {
		name, err := filepath.Rel(dir, path)
		if err != nil || !filepath.IsAbs(path) || name == "." || !filepath.IsLocal(name) {
			continue
		}
		root, err := os.OpenRoot(dir)
		return root, name, err
	}
	return nil, "", invalid("%q does not lie where the paths of clients may (%s)", path, strings.Join(s.o.HostPaths, ", "))
}

// mayName checks a path that is opened later.
func (s *Service) mayName(path string) error {
	root, _, err := s.hostPath(path)
	if err != nil {
		return err
	}
	return root.Close()
}

// openLog opens a container's log, and makes it and its directory.
func (s *Service) openLog(path string) (*os.File, error) {
	root, name, err := s.hostPath(path)
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

// refuseInternal refuses the annotations that only a door of Bulkhead's own sets.
func (s *Service) refuseInternal(all map[string]string) error {
	if s.o.Internal {
		return nil
	}
	for key := range all {
		if annotations.Internal(key) {
			return invalid("annotation %s is not for clients", key)
		}
	}
	return nil
}
