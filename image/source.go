package image

import (
	"path/filepath"

	"go.podman.io/image/v5/docker/reference"
)

// Every guest is of one platform.
const (
	platformOS   = "linux"
	platformArch = "amd64"
)

// userAgent is what registries see.
const userAgent = "bulkhead"

// loadName is the full name that a loaded image gets by name, none if that is
// empty. A name without a registry is a local one.
func loadName(name string) ([]reference.Named, error) {
	if name == "" {
		return nil, nil
	}
	if isShort(name) {
		name = filepath.Join("localhost", name)
	}
	return onlyNormalized(name)
}
