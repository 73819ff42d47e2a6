package oci

import (
	"fmt"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// NetworkNamespace returns the container's network. own means a network namespace, which must be created unless path
// names one. Otherwise the container uses the host's network.
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

// DefaultShmBytes is the default size of /dev/shm.
const DefaultShmBytes = 64 << 20

// ShmBytes returns the size of the container's /dev/shm in bytes: 0 without such a mount. A bind mount has the size of
// its source's file system, which sizeOf returns. One from the host's own /dev/shm has the default size.
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

// State converts the state of a sandbox or container to the form that an OCI runtime prints. An unknown state is an
// error.
func State(state string) (specs.ContainerState, error) {
	switch state {
	case "ready":
		return specs.StateCreated, nil
	case "running":
		return specs.StateRunning, nil
	case "stopped":
		return specs.StateStopped, nil
	case "paused":
		return "paused", nil // not in the specification, but in every runtime
	}
	return "", fmt.Errorf("unknown state %q", state)
}
