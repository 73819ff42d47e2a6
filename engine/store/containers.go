package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

func (s *Store) containerDir(pod, id string) string {
	return filepath.Join(s.Dir(pod), containersDir, id)
}

// PutContainer stores a container's record.
func (s *Store) PutContainer(pod string, c *Container) error {
	if !ValidID(c.ID) {
		return fmt.Errorf("store container %.80q: not an id", c.ID)
	}
	c.Version = Version
	dir := s.containerDir(pod, c.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("store container %s: %w", c.ID, err)
	}
	return atomicfile.WriteJSON(filepath.Join(dir, containerFile), c, 0o600, atomicfile.Volatile)
}

// PutExit stores the exit of a container.
func (s *Store) PutExit(pod, id string, e *Exit) error {
	return atomicfile.WriteJSON(filepath.Join(s.containerDir(pod, id), exitFile), e, 0o600, atomicfile.Volatile)
}

// DropContainer removes a container's records. It succeeds if there are none.
func (s *Store) DropContainer(pod, id string) error {
	if !ValidID(id) {
		return fmt.Errorf("remove container %.80q: not an id", id)
	}
	if err := os.RemoveAll(s.containerDir(pod, id)); err != nil {
		return fmt.Errorf("remove the container's records: %w", err)
	}
	return nil
}

// Stored is a container as stored on disk. Exit is nil if it has not ended.
type Stored struct {
	Container
	Exit *Exit
}

// Containers returns the pod's containers in no particular order. A container with a damaged or missing record is
// in broken, by id, with its error; clients may never have seen it.
func (s *Store) Containers(pod string) (whole []Stored, broken map[string]error, err error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir(pod), containersDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list the containers of pod %s: %w", pod, err)
	}
	broken = map[string]error{}
	for _, e := range entries {
		if !ValidID(e.Name()) {
			continue
		}
		c, err := s.container(pod, e.Name())
		if err != nil {
			broken[e.Name()] = err
			continue
		}
		whole = append(whole, c)
	}
	return whole, broken, nil
}

func (s *Store) container(pod, id string) (Stored, error) {
	var c Stored
	dir := s.containerDir(pod, id)
	if err := atomicfile.ReadJSON(filepath.Join(dir, containerFile), &c.Container); err != nil {
		return Stored{}, err
	}
	if c.ID != id || c.Version != Version {
		return Stored{}, fmt.Errorf("container %s: %w", id, atomicfile.ErrCorrupt)
	}
	var exit Exit
	err := atomicfile.ReadJSON(filepath.Join(dir, exitFile), &exit)
	if err == nil {
		c.Exit = &exit
	} else if !errors.Is(err, os.ErrNotExist) {
		// The container has ended, but how is unknown: never report success.
		c.Exit = &Exit{Code: 255, Reason: "Unknown", Message: "the record of its end is damaged"}
	}
	return c, nil
}
