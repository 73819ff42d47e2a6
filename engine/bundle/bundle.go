// Package bundle stores the OCI specification of a container for its shim. The pod's user owns the directory, so no
// link in it is followed.
package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/filter"
	"github.com/bulkhead-project/bulkhead/shim"
)

// specFile is the OCI specification in a container's bundle.
const specFile = "config.json"

// Write writes a container's specification below the pod's state directory and returns the bundle's path. mounts follow
// its own mounts. owner, if not nil, owns the bundle.
func Write(stateDir, id string, spec *specs.Spec, mounts []containerv1.Mount, owner *shim.Owner) (string, error) {
	whole := *spec
	whole.Mounts = slices.Clip(spec.Mounts)
	for _, m := range mounts {
		kind, source, options := m.Encode()
		whole.Mounts = append(whole.Mounts, specs.Mount{Destination: m.Destination, Type: kind, Source: source, Options: options})
	}
	filter.Move(&whole)
	if err := write(stateDir, id, &whole, owner); err != nil {
		return "", fmt.Errorf("write the bundle: %w", err)
	}
	return filepath.Join(stateDir, id), nil
}

func write(stateDir, id string, spec *specs.Spec, owner *shim.Owner) error {
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := oci.CheckConfig(raw); err != nil {
		return err
	}
	root, err := os.OpenRoot(stateDir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir(id, 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(filepath.Join(id, specFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(raw); err != nil || owner == nil {
		return err
	}
	return errors.Join(f.Chown(owner.UID, owner.GID), root.Lchown(id, owner.UID, owner.GID))
}

// Remove removes a container's bundle. It succeeds if there is none.
func Remove(stateDir, id string) error {
	root, err := os.OpenRoot(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the bundle: %w", err)
	}
	defer root.Close()
	return root.RemoveAll(id)
}

// Read reads a container's specification. The pod's user cannot gain anything by changing it: only the pod's own
// guest uses it.
func Read(stateDir, id string) (*specs.Spec, error) {
	spec, err := read(stateDir, id)
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	return spec, nil
}

func read(stateDir, id string) (*specs.Spec, error) {
	root, err := os.OpenRoot(stateDir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Join(id, specFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := oci.ReadConfig(f)
	if err != nil {
		return nil, err
	}
	spec := new(specs.Spec)
	if err := json.Unmarshal(raw, spec); err != nil {
		return nil, err
	}
	return spec, nil
}
