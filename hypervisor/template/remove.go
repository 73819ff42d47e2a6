package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/flock"
)

// Remove removes a template. It waits while the template is built, and returns nil if there is none. Open Templates
// stay usable.
func (s *Store) Remove(ctx context.Context, key string) error {
	if !validKey.MatchString(key) {
		return fmt.Errorf("remove template %q: %w: not a key", key, fs.ErrInvalid)
	}
	if _, err := os.Lstat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := flock.Acquire(ctx, s.lockPath(key))
	if err != nil {
		return fmt.Errorf("remove template %s: %w", key, err)
	}
	defer lock.Unlock()
	if err := s.clear(ctx, key); err != nil {
		return fmt.Errorf("remove template %s: %w", key, err)
	}
	if err := s.drop(ctx, key); err != nil {
		return fmt.Errorf("remove template %s: %w", key, err)
	}
	if err := os.Remove(s.verdictPath(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove template %s: %w", key, err)
	}
	return os.Remove(s.lockPath(key))
}

// drop removes a template. The caller holds its lock. The directory is renamed first, so that a template that is half
// removed does not look whole.
func (s *Store) drop(ctx context.Context, key string) error {
	err := os.Rename(filepath.Join(s.dir, key), s.tmpPath(key))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, s.clear(ctx, key))
}

// verdict counts the condemned templates of a key.
type verdict struct {
	Count  int    `json:"count"`
	Reason string `json:"reason"` // why the last one was condemned
}

// verdict returns the zero value if no template of the key was condemned.
func (s *Store) verdict(key string) (v verdict, err error) {
	err = atomicfile.ReadJSON(s.verdictPath(key), &v)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return v, err
}

// Condemn removes a template with failing clones, so that it is built again. It returns the number of condemned
// templates of the key. If the store's template was built after t was opened, Condemn keeps it and returns 0. t stays
// usable.
func (s *Store) Condemn(ctx context.Context, t *Template, reason string) (int, error) {
	key := t.Info.Key
	lock, err := flock.Acquire(ctx, s.lockPath(key))
	if err != nil {
		return 0, fmt.Errorf("condemn template %s: %w", key, err)
	}
	defer lock.Unlock()
	if !s.Current(t) {
		return 0, nil
	}
	v, err := s.verdict(key)
	if err == nil {
		v.Count, v.Reason = v.Count+1, reason
		err = atomicfile.WriteJSON(s.verdictPath(key), v, 0o600, atomicfile.Volatile)
	}
	if err == nil {
		err = s.clear(ctx, key)
	}
	if err == nil {
		err = s.drop(ctx, key)
	}
	if err != nil {
		return 0, fmt.Errorf("condemn template %s: %w", key, err)
	}
	return v.Count, nil
}

// Current reports whether t is the template that the store has under its key.
func (s *Store) Current(t *Template) bool {
	var now Info
	err := atomicfile.ReadJSON(filepath.Join(s.dir, t.Info.Key, infoFile), &now)
	return err == nil && now.Built.Equal(t.Info.Built)
}
