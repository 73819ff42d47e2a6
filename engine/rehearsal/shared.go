package rehearsal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/filter"
	"github.com/bulkhead-project/bulkhead/share"
)

// ShareName is the name of the directory of Tree in the guest.
func ShareName() string { return share.Name("/"+name, false, false, false, share.Auto) }

// Tree makes dir, which has an entry with the image's files (ShareName).
func Tree(dir string) error {
	root := filepath.Join(dir, ShareName())
	err := os.MkdirAll(root, 0o755)
	for _, sub := range dirs {
		err = errors.Join(err, os.Mkdir(filepath.Join(root, sub), 0o755))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, name), program(), 0o755) //nolint:gosec // a program of the guest
	}
	if err != nil {
		return fmt.Errorf("make the rehearsal's shared directory: %w", err)
	}
	return nil
}

// Shared returns the specification of a container as clients of OCI runtimes write it.
func Shared() (json.RawMessage, error) {
	spec, err := oci.New(name, "/"+name, "wait")
	if err != nil {
		return nil, fmt.Errorf("rehearsal: %w", err)
	}
	spec.Annotations = map[string]string{agentv1.Verbatim: "true"}
	spec.Hostname = name
	spec.Mounts[len(spec.Mounts)-1] = specs.Mount{
		Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"},
	}
	spec.Process.NoNewPrivileges = true
	filter.Move(spec)
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("rehearsal: %w", err)
	}
	return raw, nil
}
