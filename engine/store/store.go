// Package store keeps what an engine knows of its pods and containers on disk:
// names, records and the ends of containers. It holds no environment and no
// secret of a container.
//
// Every directory here belongs to the engine's user; what belongs to a pod's
// user lies in directories of its own below, in which nothing here is read or
// written.
package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/sandbox/journal"
)

// Errors of this package, matched with errors.Is.
var (
	// ErrReserved: another pod has the name; a *ReservedError says which.
	ErrReserved = errors.New("name is reserved")
	// ErrForeign: the sandbox belongs to another instance.
	ErrForeign = errors.New("sandbox belongs to another instance")
)

// Store is one instance's part of the roots. Its methods may be called at
// once; two calls about one pod are the caller's to put in order.
type Store struct {
	roots    dirs.Roots
	instance string
	// reserving is held while Reserve has a file that is no name yet.
	reserving sync.RWMutex
}

var instanceName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// Open makes the directories of the instance, if they are missing.
func Open(roots dirs.Roots, instance string) (*Store, error) {
	if !instanceName.MatchString(instance) {
		return nil, fmt.Errorf("open the store of instance %q: not a name of lower-case letters, digits and '-'", instance)
	}
	s := &Store{roots: roots, instance: instance}
	if err := roots.Ensure(); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	// 0711: the pods' users pass through to what is theirs.
	for _, dir := range []string{roots.Instance(instance), s.names()} {
		if err := dirs.Ensure(dir, 0o711); err != nil {
			return nil, fmt.Errorf("open the store: %w", err)
		}
	}
	return s, nil
}

// Instance is the store's own.
func (s *Store) Instance() string { return s.instance }

// Dir is where a pod's records lie.
func (s *Store) Dir(id string) string { return filepath.Join(s.roots.Sandboxes(), id) }

// DataDir is the part of Dir that belongs to the pod's user.
func (s *Store) DataDir(id string) string { return filepath.Join(s.Dir(id), "vm") }

// StateDir is where a pod's sockets and bundles lie; it belongs to the pod's
// user.
func (s *Store) StateDir(id string) string {
	return filepath.Join(s.roots.Instance(s.instance), id)
}

// Journal is the pod's journal of the engine's undos.
func (s *Store) Journal(id string) journal.Journal {
	return journal.At(filepath.Join(s.Dir(id), "journal"))
}

// LockPath is the file that the one engine of the instance locks.
func (s *Store) LockPath() string {
	return filepath.Join(s.roots.Instance(s.instance), "engine.lock")
}

func (s *Store) names() string { return filepath.Join(s.roots.Data, "names", s.instance) }

// MakePod makes the pod's directory. It fails if it exists.
func (s *Store) MakePod(id string) error {
	if err := os.Mkdir(s.Dir(id), 0o711); err != nil {
		return fmt.Errorf("make the pod's directory: %w", err)
	}
	return nil
}

// DropPod removes all directories of a pod; it succeeds if there are none.
func (s *Store) DropPod(id string) error {
	if !ValidID(id) {
		return fmt.Errorf("remove pod %.80q: not an id", id)
	}
	// The journal must outlive what it may still name: state first.
	err := os.RemoveAll(s.StateDir(id))
	if err == nil {
		fault.Point("unwind.state")
		err = os.RemoveAll(s.Dir(id))
	}
	if err != nil {
		return fmt.Errorf("remove the pod's directories: %w", err)
	}
	return nil
}

// PutPod stores a pod's record.
func (s *Store) PutPod(p *Pod) error {
	p.Version, p.Instance = Version, s.instance
	return atomicfile.WriteJSON(filepath.Join(s.Dir(p.ID), podFile), p, 0o600, atomicfile.Volatile)
}

// Pod reads a pod's record: fs.ErrNotExist, ErrForeign or
// atomicfile.ErrCorrupt if it is not there, not ours or not whole.
func (s *Store) Pod(id string) (*Pod, error) {
	p := new(Pod)
	if err := atomicfile.ReadJSON(filepath.Join(s.Dir(id), podFile), p); err != nil {
		return nil, err
	}
	switch {
	case p.Instance != s.instance:
		return nil, fmt.Errorf("pod %s: %w (%s)", id, ErrForeign, p.Instance)
	case p.ID != id || p.Version != Version || !p.Phase.valid():
		return nil, fmt.Errorf("pod %s: %w", id, atomicfile.ErrCorrupt)
	}
	return p, nil
}

// PodIDs are the pods of this instance, by their records.
func (s *Store) PodIDs() ([]string, error) {
	entries, err := os.ReadDir(s.roots.Sandboxes())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if !e.IsDir() || !ValidID(e.Name()) {
			continue
		}
		_, err := s.Pod(e.Name())
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrForeign) {
			continue
		}
		// A damaged record still is somebody's: its name will tell whose.
		if err != nil && !s.owns(e.Name()) {
			continue
		}
		ids = append(ids, e.Name())
	}
	return ids, nil
}
