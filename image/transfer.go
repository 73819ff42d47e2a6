package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/flock"
)

const (
	// convertWait bounds the wait for another process that converts the same image.
	convertWait   = time.Hour
	convertPrefix = "convert-"
)

// sourceImage is an image in its source: verified manifest and configuration.
type sourceImage struct {
	src     types.ImageSource
	layers  []types.BlobInfo
	config  v1.Image
	blob    []byte // the configuration
	id      string
	digests []digest.Digest // of the manifest, and of the list that it is in
}

// transfer copies an image from its source into the store, and returns its id.
func (s *Store) transfer(ctx context.Context, open opener, auth *Auth, report func(Progress)) (id string, err error) {
	st, err := s.newStage()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, st.remove()) }()
	src, names, err := open(ctx, st.dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	r, err := inspect(ctx, s.getenv.context(st.dir, auth), src)
	if err != nil {
		return "", err
	}
	return r.id, s.ensure(ctx, st, r, names, report)
}

// ensure converts an image unless it exists, and names it. It waits for any other caller or process that converts the
// same image, under any name.
func (s *Store) ensure(ctx context.Context, st *stage, r *sourceImage, names []reference.Named, report func(Progress)) (err error) {
	wait, cancel := context.WithTimeout(ctx, convertWait)
	defer cancel()
	path := s.path("tmp", convertPrefix+r.id)
	own, err := flock.Acquire(wait, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path), own.Unlock()) }()
	for {
		if !s.exists(r.id) {
			if err := s.build(ctx, st, r, report); err != nil {
				return err
			}
		}
		err := s.locked(ctx, func() error { return s.adopt(st, r, names) })
		// It may have been removed meanwhile.
		if !errors.Is(err, ErrNotFound) || ctx.Err() != nil {
			return err
		}
	}
}

// built returns the directory of a stage that publish moves.
func (st *stage) built() string { return filepath.Join(st.dir, "image") }

// build fetches and converts an image into a stage.
func (s *Store) build(ctx context.Context, st *stage, r *sourceImage, report func(Progress)) error {
	if err := os.Mkdir(st.built(), 0o700); err != nil {
		return err
	}
	size, err := s.download(ctx, st, r, report)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(st.built(), configFile), r.blob, 0o600, atomicfile.Durable); err != nil {
		return err
	}
	m := meta{Version: metaVersion, ID: r.id, Size: size, Pulled: time.Now().UTC()}
	return atomicfile.WriteJSON(filepath.Join(st.built(), metaFile), m, 0o600, atomicfile.Durable)
}

// adopt publishes the built image, if any, and names it. The caller holds the store's lock.
func (s *Store) adopt(st *stage, r *sourceImage, names []reference.Named) error {
	if err := s.publish(st, r.id); err != nil {
		return err
	}
	if !s.exists(r.id) {
		return ErrNotFound
	}
	if len(names) == 0 || names[0] == nil {
		return s.setRef(ref{ID: r.id})
	}
	for _, named := range names {
		next := ref{Name: named.String(), ID: r.id}
		for _, d := range r.digests {
			next.Digests = append(next.Digests, named.Name()+"@"+d.String())
		}
		if err := s.setRef(next); err != nil {
			return err
		}
	}
	return nil
}
