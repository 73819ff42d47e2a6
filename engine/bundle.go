package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/undo"
)

const (
	specFile = "config.json" // the OCI specification in a container's bundle
	maxSpec  = 4 << 20       // bytes of a stored specification
)

// writeBundle writes the container's bundle for the shim. The directory around
// it belongs to the pod's user: no link in it is followed.
func (p *pod) writeBundle(id string, spec any, rollback *undo.Stack) (string, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encode the specification: %w", err)
	}
	root, err := os.OpenRoot(p.e.store.StateDir(p.id))
	if err != nil {
		return "", fmt.Errorf("write the bundle: %w", err)
	}
	defer root.Close()
	rollback.Push("bundle", func(context.Context) error { return p.dropBundle(id) })
	if err := root.Mkdir(id, 0o700); err != nil {
		return "", fmt.Errorf("write the bundle: %w", err)
	}
	name := filepath.Join(id, specFile)
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", fmt.Errorf("write the bundle: %w", err)
	}
	defer f.Close()
	if _, err := f.Write(raw); err != nil {
		return "", fmt.Errorf("write the bundle: %w", err)
	}
	if owner := p.snapshot().Owner; owner != nil {
		if err := f.Chown(owner.UID, owner.GID); err != nil {
			return "", fmt.Errorf("write the bundle: %w", err)
		}
		if err := root.Lchown(id, owner.UID, owner.GID); err != nil {
			return "", fmt.Errorf("write the bundle: %w", err)
		}
	}
	return filepath.Join(p.e.store.StateDir(p.id), id), nil
}

func (p *pod) dropBundle(id string) error {
	root, err := os.OpenRoot(p.e.store.StateDir(p.id))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return root.RemoveAll(id)
}

// spec reads the container's specification from its bundle. The directory
// belongs to the pod's user, who gains nothing by changing it: it is said to
// the pod's own guest only.
func (c *container) spec() (*specs.Spec, error) {
	root, err := os.OpenRoot(c.pod.e.store.StateDir(c.pod.id))
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Join(c.ID, specFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSpec))
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	spec := new(specs.Spec)
	if err := json.Unmarshal(raw, spec); err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	return spec, nil
}
