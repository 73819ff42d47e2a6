package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/bulkhead-project/bulkhead/internal/flock"
)

// clear kills a builder's VM and removes its files. The caller holds the key's lock.
func (s *Store) clear(ctx context.Context, key string) error {
	return errors.Join(
		s.driver.End(ctx, s.socketPath(key)),
		os.RemoveAll(s.socketPath(key)),
		os.RemoveAll(s.tmpPath(key)),
	)
}

// Reap cleans up after builders that were killed. It skips builders that still run. It returns the failures.
func (s *Store) Reap(ctx context.Context) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reap templates: %w", err)
	}
	var errs []error
	for _, e := range entries {
		key, ok := strings.CutSuffix(strings.TrimPrefix(e.Name(), "."), ".tmp")
		if !ok || !validKey.MatchString(key) {
			continue
		}
		lock, err := flock.Try(s.lockPath(key))
		if errors.Is(err, flock.ErrLocked) {
			continue
		}
		if err == nil {
			err = errors.Join(s.clear(ctx, key), lock.Unlock())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reap template %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}
