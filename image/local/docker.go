package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
)

// maxLayers is more than any builder makes.
const maxLayers = 1024

// saved is one image in the manifest.json of docker save.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// names returns the valid names among its tags.
func (s saved) names() (names []reference.Named) {
	for _, tag := range s.RepoTags {
		if named, err := reference.ParseNormalizedNamed(tag); err == nil {
			names = append(names, reference.TagNameOnly(named))
		}
	}
	return names
}

// readDocker reads the image that which selects, and builds its manifest, which the archive lacks. Its layers get the
// digests of their content in the archive; at most limit bytes are read for that.
func (s *Source) readDocker(ctx context.Context, which string, limit int64) error {
	data, err := small(s.files, "manifest.json")
	if err != nil {
		return err
	}
	var list []saved
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("%w: manifest.json: %w", ErrFormat, err)
	}
	img, err := s.chooseSaved(list, which)
	if err != nil {
		return err
	}
	if len(img.Layers) > maxLayers {
		return fmt.Errorf("%w: %d layers", ErrFormat, len(img.Layers))
	}
	config, err := small(s.files, path.Clean(img.Config))
	if err != nil {
		return err
	}
	places := map[digest.Digest]string{digest.FromBytes(config): path.Clean(img.Config)}
	seen := map[string]manifest.Schema2Descriptor{}
	var layers []manifest.Schema2Descriptor
	for _, name := range img.Layers {
		name = path.Clean(name)
		if _, ok := seen[name]; !ok {
			if seen[name], err = s.descriptor(ctx, name, limit); err != nil {
				return err
			}
			limit -= seen[name].Size
			places[seen[name].Digest] = name
		}
		layers = append(layers, seen[name])
	}
	s.places = places
	s.top.mime = manifest.DockerV2Schema2MediaType
	s.top.data, err = manifest.Schema2FromComponents(manifest.Schema2Descriptor{
		MediaType: manifest.DockerV2Schema2ConfigMediaType, Size: int64(len(config)), Digest: digest.FromBytes(config),
	}, layers).Serialize()
	return err
}

func (s *Source) chooseSaved(list []saved, which string) (saved, error) {
	if number, ok := strings.CutPrefix(which, "@"); ok {
		i, err := strconv.Atoi(number)
		if err != nil || i < 0 || i >= len(list) {
			return saved{}, fmt.Errorf("%w: no image @%.20s (the archive has %d)", ErrWhich, number, len(list))
		}
		return list[i], nil
	}
	if which == "" {
		if len(list) != 1 {
			return saved{}, fmt.Errorf("%w: %d images in the archive: choose one with docker-archive:FILE:NAME", ErrWhich, len(list))
		}
		s.names = list[0].names()
		return list[0], nil
	}
	named, err := reference.ParseNormalizedNamed(which)
	if err != nil {
		return saved{}, fmt.Errorf("%w: name %.255q: %w", ErrFormat, which, err)
	}
	s.names = []reference.Named{reference.TagNameOnly(named)}
	for _, img := range list {
		if slices.ContainsFunc(img.names(), func(n reference.Named) bool { return n.String() == s.names[0].String() }) {
			return img, nil
		}
	}
	return saved{}, fmt.Errorf("%w: none of the %d images in the archive is %s", ErrWhich, len(list), s.names[0])
}

// descriptor reads a layer of at most limit bytes to its end, for its digest.
func (s *Source) descriptor(ctx context.Context, name string, limit int64) (manifest.Schema2Descriptor, error) {
	in, size, err := s.files.open(name)
	if err != nil {
		return manifest.Schema2Descriptor{}, err
	}
	defer in.Close()
	hash := digest.Canonical.Digester()
	if size <= limit { // a claim that may be false
		size, err = io.Copy(hash.Hash(), io.LimitReader(&cancellable{ctx, in}, limit+1))
	}
	if err != nil {
		return manifest.Schema2Descriptor{}, fmt.Errorf("read %.255s: %w", name, err)
	}
	if size > limit {
		return manifest.Schema2Descriptor{}, fmt.Errorf("%.255s: %w", name, ErrLarge)
	}
	return manifest.Schema2Descriptor{MediaType: manifest.DockerV2Schema2LayerMediaType, Size: size, Digest: hash.Digest()}, nil
}

// cancellable is a reader that fails when its context has ended.
type cancellable struct {
	ctx context.Context
	in  io.Reader
}

func (c *cancellable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.in.Read(p)
}
