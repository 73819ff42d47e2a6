package oci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// recordFile is the name of a container's record in its directory.
const recordFile = "state.json"

// record is what the next call must know about a container. It has no environment and no arguments.
type record struct {
	Version     int               `json:"version"`
	ID          string            `json:"id"`
	Bundle      string            `json:"bundle"`
	Rootfs      string            `json:"rootfs"`
	OCIVersion  string            `json:"ociVersion"`
	Created     time.Time         `json:"created"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Terminal    bool              `json:"terminal,omitempty"`
	// Surrogate is the process that stands for the container; the zero value before it exists.
	Surrogate procid.ID `json:"surrogate,omitzero"`
	Pod       podRecord `json:"pod"`
	// Container is the engine's id, empty until the engine has the container. A Sandbox is a pod's VM, and has none.
	Container string `json:"container,omitempty"`
	Sandbox   bool   `json:"sandbox,omitempty"`
	// Cgroup are the directories of the client's cgroup. Scope is systemd's unit with it, if any.
	Cgroup  []string `json:"cgroup,omitempty"`
	Scope   string   `json:"scope,omitempty"`
	Started bool     `json:"started,omitempty"`
	Paused  bool     `json:"paused,omitempty"`
	// Hooks are the hooks that are still to run.
	Hooks containerv1.Hooks `json:"hooks,omitempty"`
}

// podRecord names the container's pod at the engine.
type podRecord struct {
	Key string `json:"key"` // the engine's key
	ID  string `json:"id,omitempty"`
	Dir string `json:"dir,omitempty"` // of the shim's sockets
	// Network is the kind of the VM's network. Namespace is the path of a network namespace that outlives the container.
	Network   string `json:"network,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Own is set if the pod ends with this container.
	Own bool `json:"own,omitempty"`
}

const recordVersion = 1

func (d *Door) recordPath(id string) string { return filepath.Join(d.o.Root, id, recordFile) }

// read returns a container's record, or ErrNotExist.
func (d *Door) read(id string) (*record, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	r := &record{}
	err := atomicfile.ReadJSON(d.recordPath(id), r)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of container %s: %w", id, err)
	}
	if r.Version != recordVersion || r.ID != id {
		return nil, fmt.Errorf("the record of container %s has version %d and id %.80q", id, r.Version, r.ID)
	}
	return r, nil
}

// write replaces a container's record.
func (d *Door) write(r *record) error {
	if err := atomicfile.WriteJSON(d.recordPath(r.ID), r, 0o600, atomicfile.Volatile); err != nil {
		return fmt.Errorf("write the record of container %s: %w", r.ID, err)
	}
	return nil
}

// status returns the container's state in the words of the specification.
func (r *record) status() specs.ContainerState {
	switch {
	case r.Container == "" && (!r.Sandbox || r.Pod.ID == "") && alive(r.Surrogate):
		return specs.StateCreating
	case !alive(r.Surrogate):
		return specs.StateStopped
	case r.Paused:
		return "paused"
	case r.Started:
		return specs.StateRunning
	}
	return specs.StateCreated
}
