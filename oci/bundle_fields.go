package oci

import (
	"fmt"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// NetworkNamespace tells which network the container is to have: own is a
// namespace of its own, to be made unless path names one. Not own is the
// host's, which is never taken for a new one.
func NetworkNamespace(spec *specs.Spec) (path string, own bool) {
	if spec == nil || spec.Linux == nil {
		return "", false
	}
	for _, namespace := range spec.Linux.Namespaces {
		if namespace.Type == specs.NetworkNamespace {
			return namespace.Path, true
		}
	}
	return "", false
}

// DefaultShmBytes is the size of a /dev/shm of which nothing is said.
const DefaultShmBytes = 64 << 20

// ShmBytes is the size of the container's /dev/shm in bytes: 0 without such a
// mount. A bind mount from elsewhere has the size of that file system, which
// sizeOf tells; one from the host's own /dev/shm says nothing.
func ShmBytes(spec *specs.Spec, sizeOf func(path string) (int64, error)) (int64, error) {
	if spec == nil {
		return 0, nil
	}
	for _, mount := range spec.Mounts {
		if path.Clean(mount.Destination) != "/dev/shm" {
			continue
		}
		if mount.Type != "bind" || path.Clean(mount.Source) == "/dev/shm" {
			return DefaultShmBytes, nil
		}
		size, err := sizeOf(mount.Source)
		if err != nil {
			return 0, fmt.Errorf("size of /dev/shm: %w", err)
		}
		return size, nil
	}
	return 0, nil
}

// State is a sandbox's or container's state as an OCI runtime prints it. An
// unknown one is an error.
func State(state string) (specs.ContainerState, error) {
	switch state {
	case "ready":
		return specs.StateCreated, nil
	case "running":
		return specs.StateRunning, nil
	case "stopped":
		return specs.StateStopped, nil
	case "paused":
		return "paused", nil // not the specification's, but every runtime's
	}
	return "", fmt.Errorf("unknown state %q", state)
}
