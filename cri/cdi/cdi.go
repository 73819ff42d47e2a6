// Package cdi resolves devices of the Container Device Interface: files on the node define the changes to containers
// that ask for a device.
package cdi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

// Dirs are the usual directories of specifications. Later ones take precedence.
var Dirs = cdi.DefaultSpecDirs

// Apply adds the edits of the named devices to a container's configuration: environment, groups and device nodes.
// Package spec decides which nodes a VM has. Apply rejects devices that need the host's hardware, files or programs,
// and names the device. It reads the specifications on each call.
func Apply(config *runtimeapi.ContainerConfig, dirs []string) error {
	if len(config.GetCDIDevices()) == 0 {
		return nil
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("read the specifications of devices: %w", err)
	}
	var kinds []string // files with common edits that have been applied
	for _, d := range config.GetCDIDevices() {
		name := d.GetName()
		if _, _, _, err := parser.ParseQualifiedName(name); err != nil {
			return failure.Invalid("device %q: %v", name, err)
		}
		device := cache.GetDevice(name)
		if device == nil {
			return unknown(cache, name, dirs)
		}
		spec := device.GetSpec()
		if err := trusted.Files(spec.GetPath()); err != nil {
			return failure.New(errdefs.ErrFailedPrecondition, "device %s: %v", name, err)
		}
		if err := apply(config, name, device.ContainerEdits); err != nil {
			return err
		}
		if slices.Contains(kinds, spec.GetPath()) {
			continue
		}
		kinds = append(kinds, spec.GetPath())
		if err := apply(config, name, spec.ContainerEdits); err != nil {
			return err
		}
	}
	return nil
}

// unknown returns the reason for a missing device.
func unknown(cache *cdi.Cache, name string, dirs []string) error {
	failed := cache.GetErrors()
	files := make([]string, 0, len(failed))
	for file := range failed {
		files = append(files, file)
	}
	if len(files) == 0 {
		return failure.New(errdefs.ErrFailedPrecondition, "device %s: no specification in %s defines it", name, strings.Join(dirs, ", "))
	}
	file := slices.Min(files)
	return failure.New(errdefs.ErrFailedPrecondition, "device %s: not defined, and %s cannot be read: %v", name, file, failed[file][0])
}

func apply(config *runtimeapi.ContainerConfig, name string, e specs.ContainerEdits) error {
	refused := func(format string, args ...any) error {
		return failure.New(errdefs.ErrFailedPrecondition, "device %s: a VM cannot have %s", name, fmt.Sprintf(format, args...))
	}
	switch {
	case len(e.Mounts) > 0:
		return refused("its mount of the host's %s", e.Mounts[0].HostPath)
	case len(e.Hooks) > 0:
		return refused("its hook %s, %s, which runs on the host", e.Hooks[0].HookName, e.Hooks[0].Path)
	case len(e.NetDevices) > 0:
		return refused("its network interface %s of the host", e.NetDevices[0].HostInterfaceName)
	case e.IntelRdt != nil:
		return refused("its class of Intel's RDT")
	}
	for _, variable := range e.Env {
		key, value, _ := strings.Cut(variable, "=")
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: key, Value: []byte(value)})
	}
	for _, n := range e.DeviceNodes {
		from := n.HostPath
		if from == "" {
			from = n.Path
		}
		if n.FileMode != nil || n.UID != nil || n.GID != nil {
			return refused("an owner or mode of its own for node %s", n.Path)
		}
		config.Devices = append(config.Devices, &runtimeapi.Device{HostPath: from, ContainerPath: n.Path, Permissions: n.Permissions})
	}
	if len(e.AdditionalGIDs) == 0 {
		return nil
	}
	if config.Linux == nil {
		config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	if config.Linux.SecurityContext == nil {
		config.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{}
	}
	for _, gid := range e.AdditionalGIDs {
		if gid != 0 { // the specification requires runtimes to ignore 0
			config.Linux.SecurityContext.SupplementalGroups = append(config.Linux.SecurityContext.SupplementalGroups, int64(gid))
		}
	}
	return nil
}
