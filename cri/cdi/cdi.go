// Package cdi resolves devices of the Container Device Interface: files of the node say for each
// what containers get that ask for it.
package cdi

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

// Dirs are where nodes have their specifications, the last one going before.
var Dirs = cdi.DefaultSpecDirs

// Apply adds to a container's configuration what the devices that it names give: environment,
// groups and device nodes, of which package spec knows which ones a VM has. What needs the host's
// own hardware, files or programs is refused by the name of the device. The specifications are
// read each time.
func Apply(config *runtimeapi.ContainerConfig, dirs []string) error {
	if len(config.GetCDIDevices()) == 0 {
		return nil
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("read the specifications of devices: %w", err)
	}
	var kinds []string // whose common edits have been applied
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
			return failure.New(codes.FailedPrecondition, "device %s: %v", name, err)
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

// unknown says why a device is not there.
func unknown(cache *cdi.Cache, name string, dirs []string) error {
	failed := cache.GetErrors()
	files := make([]string, 0, len(failed))
	for file := range failed {
		files = append(files, file)
	}
	if len(files) == 0 {
		return failure.New(codes.FailedPrecondition, "device %s: no specification in %s defines it", name, strings.Join(dirs, ", "))
	}
	file := slices.Min(files)
	return failure.New(codes.FailedPrecondition, "device %s: not defined, and %s cannot be read: %v", name, file, failed[file][0])
}

func apply(config *runtimeapi.ContainerConfig, name string, e specs.ContainerEdits) error {
	refused := func(format string, args ...any) error {
		return failure.New(codes.FailedPrecondition, "device %s: a VM cannot have %s", name, fmt.Sprintf(format, args...))
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
		if gid != 0 { // which the specification has runtimes ignore
			config.Linux.SecurityContext.SupplementalGroups = append(config.Linux.SecurityContext.SupplementalGroups, int64(gid))
		}
	}
	return nil
}
