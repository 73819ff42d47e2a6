package image

import (
	"fmt"
	"path/filepath"
	"strings"

	dockerarchive "go.podman.io/image/v5/docker/archive"
	"go.podman.io/image/v5/docker/reference"
	ociarchive "go.podman.io/image/v5/oci/archive"
	ocilayout "go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/types"
)

// Every guest is of one platform.
const (
	platformOS   = "linux"
	platformArch = "amd64"
)

// userAgent is what registries see.
const userAgent = "bulkhead"

// parseSource returns what "oci:DIR[:tag]", "oci-archive:FILE[:tag]" or
// "docker-archive:FILE[:name]" mean.
func parseSource(source string) (types.ImageReference, error) {
	kind, rest, _ := strings.Cut(source, ":")
	parse := map[string]func(string) (types.ImageReference, error){
		"oci":            ocilayout.ParseReference,
		"oci-archive":    ociarchive.ParseReference,
		"docker-archive": dockerarchive.ParseReference,
	}[kind]
	if parse == nil || rest == "" {
		return nil, fmt.Errorf("%w: source %.255q (want oci:DIR, oci-archive:FILE or docker-archive:FILE)", ErrInvalid, source)
	}
	ref, err := parse(rest)
	if err != nil {
		return nil, fmt.Errorf("%w: source %.255q: %w", ErrInvalid, source, err)
	}
	return ref, nil
}

// loadName is the full name that a loaded image gets: the one asked for, else
// the one that its source says, else none. A name without a registry is a
// local one.
func loadName(name string, ref types.ImageReference) (reference.Named, error) {
	if name == "" {
		if named := ref.DockerReference(); named != nil {
			return reference.TagNameOnly(named), nil
		}
		return nil, nil
	}
	if isShort(name) {
		name = filepath.Join("localhost", name)
	}
	named, err := onlyNormalized(name)
	if err != nil {
		return nil, err
	}
	return named[0], nil
}
