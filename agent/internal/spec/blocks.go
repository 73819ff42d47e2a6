package spec

import (
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// rule is a rule of a device cgroup.
type rule struct {
	Allow  bool   `json:"allow"`
	Type   string `json:"type"`
	Major  int64  `json:"major"`
	Minor  int64  `json:"minor"`
	Access string `json:"access"`
}

// blocks converts mounts of block devices without a file system to devices: a node at the mount's destination, with
// access in the container's cgroup.
func (s *Spec) blocks(m VM) error {
	var mounts, kept []Mount
	if err := s.top.get("mounts", &mounts); err != nil {
		return err
	}
	ours, err := described(mounts)
	if err != nil {
		return err
	}
	var devices []Device
	var rules []rule
	for i, mount := range mounts {
		block, ok := ours[i].Source.(containerv1.Block)
		if !ok || block.FS != containerv1.NoFS {
			kept = append(kept, mount)
			continue
		}
		at := path.Clean("/" + mount.Destination)
		if m.Block == nil {
			return fmt.Errorf("block device at %.128q: %w", at, errdefs.ErrNotImplemented)
		}
		major, minor, err := m.Block(block)
		if err != nil {
			return fmt.Errorf("block device at %.128q: %w", at, err)
		}
		d := Device{Path: at, Type: "b", Major: int64(major), Minor: int64(minor), Mode: block.Mode, GID: uint32(ours[i].Group)}
		devices = append(devices, d)
		rules = append(rules, rule{Allow: true, Type: d.Type, Major: d.Major, Minor: d.Minor, Access: block.Access})
	}
	if len(devices) == 0 {
		return nil
	}
	if err := s.top.set("mounts", kept); err != nil {
		return err
	}
	return s.addDevices(devices, rules)
}

// addDevices adds devices and their access rules to the specification.
func (s *Spec) addDevices(devices []Device, rules []rule) error {
	linux, resources := object{}, object{}
	if err := s.top.get("linux", &linux); err != nil {
		return err
	}
	if err := linux.get("resources", &resources); err != nil {
		return err
	}
	if linux == nil {
		linux = object{}
	}
	if resources == nil {
		resources = object{}
	}
	if err := linux.append("devices", devices); err != nil {
		return err
	}
	if err := resources.append("devices", rules); err != nil {
		return err
	}
	if err := linux.set("resources", resources); err != nil {
		return err
	}
	return s.top.set("linux", linux)
}
