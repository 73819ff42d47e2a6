package image

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image is one image of a store, as it was when it was looked up.
type Image struct {
	// ID identifies the image's content: a hexadecimal SHA-256 of the digests of its configuration and of its layers,
	// which this process has verified. It differs from all of those digests.
	ID string `json:"id"`
	// Names are the full names ("docker.io/library/busybox:latest") of the image in the store's instance, sorted.
	Names []string `json:"names,omitempty"`
	// Digests are "repository@sha256:…" for each manifest that it was pulled by, sorted.
	Digests []string `json:"digests,omitempty"`
	// Size is the image's size on the host's disk, in bytes.
	Size int64 `json:"size"`
	// Created is when the image was made, zero if unknown.
	Created time.Time `json:"created,omitzero"`
	// Pulled is when its disk was made on this host.
	Pulled time.Time `json:"pulled"`
	// User is Config.User: name or uid, with an optional group after a colon.
	// Names are looked up in the guest.
	User string `json:"user,omitempty"`
	// Config is the image's configuration for running it.
	Config v1.ImageConfig `json:"config"`
}

// meta is a stored image's meta.json.
type meta struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Size    int64     `json:"size"` // of the EROFS, before it is extended
	Pulled  time.Time `json:"pulled"`
}

const metaVersion = 1

// maxManifest bounds manifests and configurations.
const maxManifest = 4 << 20

// parseConfig reads an image's configuration and checks that it fits layers.
func parseConfig(blob []byte, layers int) (v1.Image, error) {
	var config v1.Image
	if err := json.Unmarshal(blob, &config); err != nil {
		return v1.Image{}, fmt.Errorf("%w: configuration: %w", ErrInvalid, err)
	}
	if config.OS != "" && config.OS != platformOS || config.Architecture != "" && config.Architecture != platformArch {
		return v1.Image{}, fmt.Errorf("%w: built for %s/%s, not %s/%s", ErrInvalid,
			config.OS, config.Architecture, platformOS, platformArch)
	}
	if len(config.RootFS.DiffIDs) != layers {
		return v1.Image{}, fmt.Errorf("%w: %d layers, but %d in the configuration", ErrInvalid, layers, len(config.RootFS.DiffIDs))
	}
	for _, d := range config.RootFS.DiffIDs {
		if err := checkDigest(d); err != nil {
			return v1.Image{}, err
		}
	}
	return config, nil
}

// checkDigest refuses digests that cannot be used for verification.
func checkDigest(d digest.Digest) error {
	if err := d.Validate(); err != nil {
		return fmt.Errorf("%w: digest %.80q: %w", ErrInvalid, d, err)
	}
	return nil
}
