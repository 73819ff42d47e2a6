package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Name is a reserved name and the id of its pod.
type Name struct {
	ID  string `json:"id"`
	Key string `json:"key"`
}

// ReservedError is returned by Reserve if the name is taken.
type ReservedError struct{ Name }

// Error names the pod that has the name.
func (e *ReservedError) Error() string {
	return fmt.Sprintf("name %q is reserved by pod %s", e.Key, e.ID)
}

// Unwrap returns the class.
func (e *ReservedError) Unwrap() error { return errdefs.ErrAlreadyExists }

// NewID returns 64 random hexadecimal digits.
func NewID() string {
	var b [32]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// ValidID reports whether id has the form of NewID's result.
func ValidID(id string) bool {
	return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == ""
}

// Reserve reserves the name key for the pod id, or returns a *ReservedError. It is exclusive between processes, and
// a name never exists without its id.
func (s *Store) Reserve(key, id string) error {
	s.reserving.RLock()
	defer s.reserving.RUnlock()
	path := s.namePath(key)
	// The file is complete before link(2) gives it the name; link fails if the name exists.
	tmp := filepath.Join(s.names(), "."+id)
	if err := atomicfile.WriteJSON(tmp, Name{ID: id, Key: key}, 0o600, atomicfile.Volatile); err != nil {
		return fmt.Errorf("reserve the name %q: %w", key, err)
	}
	defer os.Remove(tmp)
	err := os.Link(tmp, path)
	if errors.Is(err, os.ErrExist) {
		var holder Name
		if readErr := atomicfile.ReadJSON(path, &holder); readErr != nil {
			return errclass.New(errdefs.ErrAlreadyExists, "reserve the name %q: name is reserved: %w", key, readErr)
		}
		return &ReservedError{holder}
	}
	if err != nil {
		return fmt.Errorf("reserve the name %q: %w", key, err)
	}
	return nil
}

// Release releases key if id holds it; otherwise it does nothing and succeeds.
func (s *Store) Release(key, id string) error {
	var holder Name
	err := atomicfile.ReadJSON(s.namePath(key), &holder)
	if errors.Is(err, os.ErrNotExist) || err == nil && holder.ID != id {
		return nil
	}
	if err == nil || errors.Is(err, atomicfile.ErrCorrupt) {
		err = os.Remove(s.namePath(key))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release the name %q: %w", key, err)
	}
	return nil
}

// Names returns all reserved names of the instance. It removes damaged ones, which belong to no pod. Names may be
// released meanwhile.
func (s *Store) Names() ([]Name, error) {
	s.reserving.Lock()
	defer s.reserving.Unlock()
	entries, err := os.ReadDir(s.names())
	if err != nil {
		return nil, fmt.Errorf("list names: %w", err)
	}
	var names []Name
	for _, e := range entries {
		path := filepath.Join(s.names(), e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			// Left by a crash of Reserve. The engine's lock excludes other processes, and s.reserving excludes this
			// one.
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("list names: %w", err)
			}
			continue
		}
		var n Name
		err := atomicfile.ReadJSON(path, &n)
		if errors.Is(err, os.ErrNotExist) {
			continue // released meanwhile
		}
		if errors.Is(err, atomicfile.ErrCorrupt) || err == nil && !ValidID(n.ID) {
			err = os.Remove(path)
			n.ID = ""
		}
		if err != nil {
			return nil, fmt.Errorf("list names: %w", err)
		}
		if n.ID != "" {
			names = append(names, n)
		}
	}
	return names, nil
}

// owns reports whether id has one of the instance's names.
func (s *Store) owns(id string) bool {
	names, err := s.Names()
	for _, n := range names {
		if err == nil && n.ID == id {
			return true
		}
	}
	return false
}

// namePath hashes the key, because names may contain any byte and exceed the length limit of file names.
func (s *Store) namePath(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(s.names(), hex.EncodeToString(sum[:]))
}
