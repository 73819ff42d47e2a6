package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// Instances returns the names of all instances with data in roots.
func Instances(roots dirs.Roots) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(roots.Data, "names"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the instances: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && instanceName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Pods returns the records of all pods of the instance. damaged has the errors of unreadable records by id.
func (s *Store) Pods() (pods []*Pod, damaged map[string]error, err error) {
	ids, err := s.PodIDs()
	if err != nil {
		return nil, nil, err
	}
	damaged = map[string]error{}
	for _, id := range ids {
		p, err := s.Pod(id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			damaged[id] = err
		default:
			pods = append(pods, p)
		}
	}
	return pods, damaged, nil
}
