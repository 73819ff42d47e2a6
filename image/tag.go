package image

import (
	"context"
	"fmt"

	"go.podman.io/image/v5/docker/reference"
)

// Tag makes each of names refer to the image of nameOrID too. A name without a registry is a local one, as for Load. If
// one is invalid, none is set. Errors: ErrNotFound, ErrAmbiguous, ErrInvalid.
func (s *Store) Tag(ctx context.Context, nameOrID string, names []string) error {
	var full []reference.Named
	for _, name := range names {
		named, err := loadName(name)
		if err == nil && len(named) == 0 {
			err = fmt.Errorf("%w: an empty name", ErrInvalid)
		}
		if err == nil && !isTagged(named[0]) {
			err = fmt.Errorf("%w: %s: must have a tag and no digest", ErrInvalid, name)
		}
		if err != nil {
			return fmt.Errorf("tag image %s: %w", nameOrID, err)
		}
		full = append(full, named...)
	}
	err := s.locked(ctx, func() error {
		id, _, err := s.lookup(nameOrID)
		if err != nil {
			return err
		}
		for _, named := range full {
			if err := s.setRef(ref{Name: named.String(), ID: id}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tag image %s: %w", nameOrID, err)
	}
	return nil
}

func isTagged(named reference.Named) bool {
	_, ok := named.(reference.NamedTagged)
	return ok
}
