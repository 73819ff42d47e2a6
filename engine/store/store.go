// Package store keeps an engine's state of its pods and containers on disk: names, records and exits. It stores no
// environment and no secret of a container.
//
// The engine's user owns every directory of the store. A pod's user owns separate directories below, which this
// package neither reads nor writes.
package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/sandbox/journal"
)

// Errors of this package, matched with errors.Is.
var (
	// ErrForeign means that the pod belongs to another instance.
	ErrForeign = errdefs.ErrNotFound.WithMessage("sandbox belongs to another instance")
)

// Store is one instance's part of the roots. Its methods are safe for concurrent use, but callers must serialise
// calls for one pod.
type Store struct {
	roots    dirs.Roots
	instance string
	// reserving is held while Reserve has a temporary file.
	reserving sync.RWMutex
}

var instanceName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// Open opens the store of an instance, and creates its directories.
func Open(roots dirs.Roots, instance string) (*Store, error) {
	if !instanceName.MatchString(instance) {
		return nil, fmt.Errorf("open the store of instance %q: not a name of lower-case letters, digits and '-'", instance)
	}
	s := &Store{roots: roots, instance: instance}
	if err := roots.Ensure(); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	// Mode 0711 lets the pods' users pass through to their own directories.
	for _, dir := range []string{roots.Instance(instance), s.names()} {
		if err := dirs.Ensure(dir, 0o711); err != nil {
			return nil, fmt.Errorf("open the store: %w", err)
		}
	}
	return s, nil
}

// Instance returns the name of the store's instance.
func (s *Store) Instance() string { return s.instance }

// Dir returns the directory of a pod's records.
func (s *Store) Dir(id string) string { return filepath.Join(s.roots.Sandboxes(), id) }

// DataDir is the part of Dir that belongs to the pod's user.
func (s *Store) DataDir(id string) string { return filepath.Join(s.Dir(id), "vm") }

// StateDir returns the directory of a pod's sockets and bundles. The pod's user owns it.
func (s *Store) StateDir(id string) string {
	return filepath.Join(s.roots.Instance(s.instance), id)
}

// Journal returns the pod's journal of undos.
func (s *Store) Journal(id string) journal.Journal {
	return journal.At(filepath.Join(s.Dir(id), "journal"))
}

// LockPath returns the file that the engine of the instance locks.
func (s *Store) LockPath() string {
	return filepath.Join(s.roots.Instance(s.instance), "engine.lock")
}

func (s *Store) names() string { return filepath.Join(s.roots.Data, "names", s.instance) }

// MakePod creates the pod's directory. It fails if the directory exists.
func (s *Store) MakePod(id string) error {
	if err := os.Mkdir(s.Dir(id), 0o711); err != nil {
		return fmt.Errorf("make the pod's directory: %w", err)
	}
	return nil
}

// DropPod removes all directories of a pod. It succeeds if there are none.
func (s *Store) DropPod(id string) error {
	if !ValidID(id) {
		return fmt.Errorf("remove pod %.80q: not an id", id)
	}
	// The journal must outlive the state that it names, so the state is removed first.
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

// Pod reads a pod's record. The error matches fs.ErrNotExist, ErrForeign or atomicfile.ErrCorrupt.
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

// PodIDs returns the ids of the pods of this instance, by their records.
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
		// A damaged record still belongs to a pod if its id has a name.
		if err != nil && !s.owns(e.Name()) {
			continue
		}
		ids = append(ids, e.Name())
	}
	return ids, nil
}
