package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"

	"github.com/bulkhead-project/bulkhead/image/convert"
)

// maxLayers is more than any builder makes.
const maxLayers = 1024

// inspect reads the manifest for the guests' platform and the configuration,
// and verifies and checks both.
func inspect(ctx context.Context, sys *types.SystemContext, src types.ImageSource) (*sourceImage, error) {
	top := image.UnparsedInstance(src, nil)
	if err := allowed(ctx, sys, top); err != nil {
		return nil, err
	}
	raw, mime, err := top.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	r := &sourceImage{src: src, digests: []digest.Digest{digest.FromBytes(raw)}}
	if manifest.MIMETypeIsMultiImage(mime) {
		raw, mime, err = r.choose(ctx, sys, raw, mime)
		if err != nil {
			return nil, err
		}
	}
	if mime == manifest.DockerV2Schema1MediaType || mime == manifest.DockerV2Schema1SignedMediaType {
		return nil, fmt.Errorf("%w: manifest of Docker's first schema", ErrInvalid)
	}
	m, err := manifest.FromBlob(raw, mime)
	if err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrInvalid, err)
	}
	return r, r.read(ctx, m)
}

// choose reads the manifest for the guests' platform out of a list.
func (r *sourceImage) choose(ctx context.Context, sys *types.SystemContext, raw []byte, mime string) ([]byte, string, error) {
	list, err := manifest.ListFromBlob(raw, mime)
	if err != nil {
		return nil, "", fmt.Errorf("%w: image index: %w", ErrInvalid, err)
	}
	chosen, err := list.ChooseInstance(sys)
	if err != nil {
		return nil, "", fmt.Errorf("%w: none for %s/%s: %w", ErrNotFound, platformOS, platformArch, err)
	}
	if err := checkDigest(chosen); err != nil {
		return nil, "", err
	}
	instance := image.UnparsedInstance(r.src, &chosen)
	if err := allowed(ctx, sys, instance); err != nil {
		return nil, "", err
	}
	raw, mime, err = instance.Manifest(ctx)
	r.digests = append(r.digests, chosen)
	return raw, mime, err
}

// ownBlob returns a blob without the addresses that the manifest gives for it, so that it is read from its image's own
// source. The image chooses those addresses, which could be the host's own or in its network. The library would use
// them first.
func ownBlob(info types.BlobInfo) types.BlobInfo {
	info.URLs = nil
	return info
}

// read stores the manifest's content, and fetches the configuration.
func (r *sourceImage) read(ctx context.Context, m manifest.Manifest) error {
	info := ownBlob(m.ConfigInfo())
	if err := checkDigest(info.Digest); err != nil {
		return err
	}
	for _, l := range m.LayerInfos() {
		if err := checkDigest(l.Digest); err != nil {
			return err
		}
		if l.Size < 0 {
			return fmt.Errorf("%w: layer %s of %d bytes", ErrInvalid, l.Digest, l.Size)
		}
		if !l.EmptyLayer {
			r.layers = append(r.layers, ownBlob(l.BlobInfo))
		}
	}
	if len(r.layers) > maxLayers {
		return fmt.Errorf("%w: %d layers", ErrInvalid, len(r.layers))
	}
	var err error
	if r.blob, err = readBlob(ctx, r.src, info); err != nil {
		return err
	}
	r.id = contentID(info.Digest, r.layers)
	r.config, err = parseConfig(r.blob, len(r.layers))
	return err
}

// contentID returns the id that an image is stored under: a hash of the converter's whole input. A layer that takes
// over the converter can only spoil the disks of images with the same layers. The configuration is part of it: it has
// the digests of the uncompressed layers, and anyone may combine it with other layers.
func contentID(config digest.Digest, layers []types.BlobInfo) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "disk %d\n%s\n", convert.Version, config)
	for _, l := range layers {
		fmt.Fprintln(hash, l.Digest)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
