package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// minPrefix is the shortest prefix of an id.
const minPrefix = 3

// Resolve returns the image of this instance with that name, name with digest, id or unique prefix of an id. A name is
// completed as for a pull, localhost first. Errors: ErrNotFound, ErrAmbiguous, ErrInvalid.
func (s *Store) Resolve(nameOrID string) (Image, error) {
	id, _, err := s.lookup(nameOrID)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", nameOrID, err)
	}
	refs, err := s.refs(s.instance)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", nameOrID, err)
	}
	return s.load(id, refs)
}

// List returns the images of this instance, newest first.
func (s *Store) List() ([]Image, error) {
	refs, err := s.refs(s.instance)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	seen := map[string]bool{}
	var out []Image
	for _, r := range refs {
		if seen[r.ID] {
			continue
		}
		seen[r.ID] = true
		img, err := s.load(r.ID, refs)
		if errors.Is(err, ErrNotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list images: %w", err)
		}
		out = append(out, img)
	}
	slices.SortFunc(out, func(a, b Image) int {
		if c := b.Pulled.Compare(a.Pulled); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, nil
}

// ConfigJSON returns the image's configuration, byte for byte.
func (s *Store) ConfigJSON(id string) ([]byte, error) {
	if !validID(id) {
		return nil, fmt.Errorf("image %.80q: %w", id, ErrNotFound)
	}
	f, err := os.Open(s.path(id, configFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("image %s: %w", shortid.Of(id), ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxManifest))
}

// load reads a stored image, with its names from refs. ErrNotFound if it was removed meanwhile.
func (s *Store) load(id string, refs []ref) (Image, error) {
	var m meta
	err := atomicfile.ReadJSON(s.path(id, metaFile), &m)
	if errors.Is(err, os.ErrNotExist) {
		return Image{}, ErrNotFound
	}
	if err != nil {
		return Image{}, err
	}
	blob, err := s.ConfigJSON(id)
	if err != nil {
		return Image{}, err
	}
	var config v1.Image
	if err := json.Unmarshal(blob, &config); err != nil {
		return Image{}, fmt.Errorf("image %s: %w: %w", shortid.Of(id), atomicfile.ErrCorrupt, err)
	}
	img := Image{ID: id, Size: m.Size, Pulled: m.Pulled, User: config.Config.User, Config: config.Config}
	if config.Created != nil {
		img.Created = *config.Created
	}
	for _, r := range refs {
		if r.ID != id {
			continue
		}
		if r.Name != "" {
			img.Names = append(img.Names, r.Name)
		}
		img.Digests = union(img.Digests, r.Digests)
	}
	slices.Sort(img.Names)
	return img, nil
}

// lookup returns an image's id, and the name of its reference if it was found by name.
func (s *Store) lookup(nameOrID string) (id, name string, err error) {
	refs, err := s.refs(s.instance)
	if err != nil {
		return "", "", err
	}
	if id, err := matchID(refs, nameOrID); err != nil || id != "" {
		return id, "", err
	}
	if validID(strings.TrimPrefix(nameOrID, "sha256:")) {
		return "", "", ErrNotFound // no name can look like this
	}
	names, err := s.getenv.localNames(nameOrID)
	if err != nil {
		return "", "", err
	}
	for _, n := range names {
		for _, r := range refs {
			if r.Name == n {
				return r.ID, r.Name, nil
			}
			if slices.Contains(r.Digests, n) {
				return r.ID, "", nil
			}
		}
	}
	return "", "", ErrNotFound
}

func matchID(refs []ref, text string) (string, error) {
	prefix := strings.TrimPrefix(text, "sha256:")
	if len(prefix) < minPrefix || strings.Trim(prefix, "0123456789abcdef") != "" {
		return "", nil
	}
	found := ""
	for _, r := range refs {
		if strings.HasPrefix(r.ID, prefix) {
			if found != "" && found != r.ID {
				return "", fmt.Errorf("%w: %s and %s", ErrAmbiguous, shortid.Of(found), shortid.Of(r.ID))
			}
			found = r.ID
		}
	}
	return found, nil
}

// union returns the members of both, sorted and without duplicates.
func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}
