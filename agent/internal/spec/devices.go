package spec

import (
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Device is an OCI device.
type Device struct {
	Path  string `json:"path"`
	Type  string `json:"type"` // "c" or "b"
	Major int64  `json:"major"`
	Minor int64  `json:"minor"`
	Mode  uint32 `json:"fileMode"`
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
}

// in reports whether the VM has the device. A fifo needs none.
func (d Device) in(m VM) bool {
	kind := d.Type
	switch kind {
	case "p":
		return true
	case "u":
		kind = "c"
	case "c", "b":
	default:
		return false
	}
	return m.HasDevice != nil && m.HasDevice(kind, d.Major, d.Minor)
}

// devices adds the VM's devices for a container that gets all. A verbatim container can have only devices of the VM; a
// pod's can also have nodes that it may not open.
func (s *Spec) devices(m VM, linux object) error {
	var own []json.RawMessage // each with the fields that it has
	if err := linux.get("devices", &own); err != nil {
		return fmt.Errorf("linux: %w", err)
	}
	at := map[string]json.RawMessage{}
	for _, raw := range own {
		var d Device
		if err := json.Unmarshal(raw, &d); err != nil {
			return fmt.Errorf("linux.devices: %w: %w", errdefs.ErrInvalidArgument, err)
		}
		if s.Verbatim && !d.in(m) {
			return fmt.Errorf("linux.devices: %.128s (%.1s %d:%d): the guest has no such device: %w",
				d.Path, d.Type, d.Major, d.Minor, errdefs.ErrNotImplemented)
		}
		at[d.Path] = raw
	}
	if s.notes[agentv1.AllDevices] != "true" || m.Devices == nil {
		return nil
	}
	all, err := m.Devices()
	if err != nil {
		return fmt.Errorf("list the VM's devices: %w", err)
	}
	// At the same path, a pod's container has the VM's device, and a verbatim one has the specification's.
	var added []Device
	for _, d := range all {
		if at[d.Path] == nil || !s.Verbatim {
			added = append(added, d)
			delete(at, d.Path)
		}
	}
	if err := linux.set("devices", added); err != nil {
		return err
	}
	var kept []json.RawMessage
	for _, raw := range own {
		var d Device
		if json.Unmarshal(raw, &d) == nil && at[d.Path] != nil {
			kept = append(kept, raw)
		}
	}
	return linux.append("devices", kept)
}
