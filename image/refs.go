package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// ref is one reference: a name in one instance, and its image. The reference of an image without a name has an empty
// Name.
type ref struct {
	Name    string   `json:"name"`
	ID      string   `json:"id"`
	Digests []string `json:"digests,omitempty"` // repository@digest

	path string
}

// refPath returns the file of a name's reference. Names are longer than file names may be, and have other characters.
func (s *Store) refPath(name, id string) string {
	if name == "" {
		name = "id:" + id
	}
	sum := sha256.Sum256([]byte(name))
	return s.path("refs", s.instance, hex.EncodeToString(sum[:])+".json")
}

// setRef makes name refer to id, and collects its previous image. The caller holds the store's lock.
func (s *Store) setRef(r ref) error {
	path := s.refPath(r.Name, r.ID)
	var old ref
	if err := atomicfile.ReadJSON(path, &old); err == nil && old.ID == r.ID {
		r.Digests = union(old.Digests, r.Digests)
	}
	if err := atomicfile.WriteJSON(path, r, 0o600, atomicfile.Durable); err != nil {
		return err
	}
	if old.ID != "" && old.ID != r.ID {
		return s.collect(old.ID)
	}
	return nil
}

// refs returns the references of one instance. A damaged one is an error that names its file: its image must not be
// taken for unreferenced.
func (s *Store) refs(instance string) ([]ref, error) {
	files, err := filepath.Glob(filepath.Join(s.path("refs", instance), "*.json"))
	if err != nil {
		return nil, err
	}
	var out []ref
	for _, file := range files {
		var r ref
		err := atomicfile.ReadJSON(file, &r)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		r.path = file
		out = append(out, r)
	}
	return out, nil
}

// users returns the references to id in all instances.
func (s *Store) users(id string) ([]ref, error) {
	instances, err := os.ReadDir(s.path("refs"))
	if err != nil {
		return nil, err
	}
	var out []ref
	for _, instance := range instances {
		refs, err := s.refs(instance.Name())
		if err != nil {
			return nil, err
		}
		for _, r := range refs {
			if r.ID == id {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// goneExt marks an image that is being removed.
const goneExt = ".gone"

// collect removes an image without references and pins. The caller holds the store's lock.
func (s *Store) collect(id string) error {
	if !validID(id) {
		return fmt.Errorf("%w: id %.80q", ErrInvalid, id)
	}
	users, err := s.users(id)
	if err != nil || len(users) > 0 {
		return err
	}
	holders, err := s.holders(id)
	if err != nil || len(holders) > 0 {
		return err
	}
	// It is moved first, so that no crash leaves half an image under its id. The move must not create anything, since a
	// full disk is emptied this way.
	gone := s.path("tmp", id+goneExt)
	if err := os.Rename(s.path(id), gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(gone)
}

// collectAll collects the images that a killed process left unreferenced.
func (s *Store) collectAll() error {
	ids, err := s.ids()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		errs = append(errs, s.collect(id))
	}
	return errors.Join(errs...)
}

func (s *Store) ids() ([]string, error) {
	entries, err := os.ReadDir(s.root)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if validID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// RemoveOptions configure Remove.
type RemoveOptions struct {
	// Force removes the names of an image in use. Its disk is removed when the last sandbox has unpinned it.
	Force bool
}

// Remove removes a name, or every name of an image given by its id. The image is removed with its last reference.
// Errors: ErrNotFound, ErrAmbiguous, ErrInUse.
func (s *Store) Remove(ctx context.Context, nameOrID string, opts RemoveOptions) error {
	err := s.locked(ctx, func() error {
		found, named, err := s.lookup(nameOrID)
		if err != nil {
			return err
		}
		return s.removeRefs(found, named, opts)
	})
	if err != nil {
		return fmt.Errorf("remove image %s: %w", nameOrID, err)
	}
	return nil
}

func (s *Store) removeRefs(id, named string, opts RemoveOptions) error {
	all, err := s.users(id)
	if err != nil {
		return err
	}
	mine, err := s.refs(s.instance)
	if err != nil {
		return err
	}
	var doomed []ref
	for _, r := range mine {
		if r.ID == id && (named == "" || r.Name == named) {
			doomed = append(doomed, r)
		}
	}
	holders, err := s.holders(id)
	if err != nil {
		return err
	}
	if len(doomed) == len(all) && len(holders) > 0 && !opts.Force {
		return &InUseError{Sandboxes: holders}
	}
	for _, r := range doomed {
		if err := os.Remove(r.path); err != nil {
			return err
		}
	}
	return s.collect(id)
}
