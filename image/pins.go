package image

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// maxHolder bounds a holder's name, which becomes part of an escaped file name.
const maxHolder = 80

// Pin keeps an image's disk for holder, a sandbox's name, until Unpin, across restarts. It is idempotent. Error:
// ErrNotFound.
func (s *Store) Pin(ctx context.Context, id, holder string) error {
	err := s.locked(ctx, func() error {
		if !validID(id) || !s.exists(id) {
			return ErrNotFound
		}
		if holder == "" || len(holder) > maxHolder {
			return fmt.Errorf("%w: holder %.90q", ErrInvalid, holder)
		}
		if err := os.MkdirAll(s.path("pins", id), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(s.pinPath(id, holder), nil, 0o600); err != nil {
			return err
		}
		return errors.Join(atomicfile.SyncDir(s.path("pins", id)), atomicfile.SyncDir(s.path("pins")))
	})
	if err != nil {
		return fmt.Errorf("pin image %s: %w", shortid.Of(id), err)
	}
	return nil
}

// Unpin removes a pin, and the image if it has no other pin or reference. It succeeds if there is no such pin.
func (s *Store) Unpin(ctx context.Context, id, holder string) error {
	if !validID(id) {
		return nil
	}
	err := s.locked(ctx, func() error {
		if err := os.Remove(s.pinPath(id, holder)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return s.collect(id)
	})
	if err != nil {
		return fmt.Errorf("unpin image %s: %w", shortid.Of(id), err)
	}
	return nil
}

// UnpinAll removes every pin of holder, for a sandbox that has ended.
func (s *Store) UnpinAll(ctx context.Context, holder string) error {
	pins, err := s.Pins()
	if err != nil {
		return err
	}
	var errs []error
	for id, holders := range pins {
		for _, h := range holders {
			if h == holder {
				errs = append(errs, s.Unpin(ctx, id, holder))
			}
		}
	}
	return errors.Join(errs...)
}

// Pins returns the holders of each pinned image, of all instances. A reaper unpins the images of its sandboxes that no
// longer exist.
func (s *Store) Pins() (map[string][]string, error) {
	entries, err := os.ReadDir(s.path("pins"))
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	pins := map[string][]string{}
	for _, e := range entries {
		holders, err := s.holders(e.Name())
		if err != nil {
			return nil, fmt.Errorf("list pins: %w", err)
		}
		if len(holders) > 0 {
			pins[e.Name()] = holders
		}
	}
	return pins, nil
}

func (s *Store) pinPath(id, holder string) string {
	return s.path("pins", id, "pin-"+url.PathEscape(holder))
}

func (s *Store) holders(id string) ([]string, error) {
	entries, err := os.ReadDir(s.path("pins", id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if name, err := url.PathUnescape(e.Name()); err == nil && len(name) > len("pin-") {
			out = append(out, name[len("pin-"):])
		}
	}
	return out, nil
}
