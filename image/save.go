package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bulkhead-project/bulkhead/image/archive"
	"github.com/bulkhead-project/bulkhead/image/convert"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
)

// Save writes an image to path, an archive in a format of package archive. The archive replaces the file at path once
// it is complete. The saved image has one layer with all its files, and so an id of its own. It keeps its configuration
// and its names, or only the name that it was requested by. Errors: ErrNotFound, ErrAmbiguous, ErrInvalid, ErrNoSpace.
func (s *Store) Save(ctx context.Context, nameOrID, path, format string) error {
	if err := s.save(ctx, nameOrID, path, format); err != nil {
		if errors.Is(err, archive.ErrFormat) {
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return fmt.Errorf("save image %s: %w", nameOrID, classify(err, ""))
	}
	return nil
}

func (s *Store) save(ctx context.Context, nameOrID, path, format string) (err error) {
	id, name, err := s.lookup(nameOrID)
	if err != nil {
		return err
	}
	disk, err := s.OpenDisk(id) // open, it stays even if the image is removed
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	img, err := s.flatten(id, func(out io.Writer) error {
		return s.converters.run(ctx, func(g *hostcgroup.Group) error { return convert.Export(ctx, g, disk, out) })
	})
	if err != nil {
		return err
	}
	if name != "" {
		img.Names = []string{name}
	}
	out, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = archive.Write(out, format, img)
	if err = errors.Join(err, out.Chmod(0o644), out.Close()); err == nil {
		err = os.Rename(out.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(out.Name()))
	}
	return err
}

// flatten reads an image's content once, for the digest of its only layer.
func (s *Store) flatten(id string, content func(io.Writer) error) (archive.Image, error) {
	img, err := s.Resolve(id)
	if err != nil {
		return archive.Image{}, err
	}
	hash := digest.Canonical.Digester()
	counted := &counter{out: hash.Hash()}
	if err := content(counted); err != nil {
		return archive.Image{}, err
	}
	config, err := s.flatConfig(id, hash.Digest())
	return archive.Image{Names: img.Names, Config: config, Layer: hash.Digest(), Size: counted.n, Content: content}, err
}

// flatConfig returns an image's configuration with its only layer.
func (s *Store) flatConfig(id string, diffID digest.Digest) ([]byte, error) {
	data, err := s.ConfigJSON(id)
	if err != nil {
		return nil, err
	}
	var config map[string]json.RawMessage // keeps unknown fields
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		"rootfs":  v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{diffID}},
		"history": []v1.History{{CreatedBy: "bulkhead image save"}},
	} {
		if config[name], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	return json.Marshal(config)
}

// counter counts the bytes written.
type counter struct {
	out io.Writer
	n   int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	c.n += int64(n)
	return n, err
}
