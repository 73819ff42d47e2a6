package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/ulimit"
	"github.com/bulkhead-project/bulkhead/volume"
)

// ErrBeyondCRI is matched by Plain's errors: a field needs a runtime that offers more than the CRI.
var ErrBeyondCRI = errors.New("the runtime does not support it")

// Beyond returns the pod's options for which the CRI has no fields.
func Beyond(o *Options) runtimev1.PodOptions {
	limit := podLimits(o.Pod)[corev1.ResourceEphemeralStorage]
	storage := limit.Value()
	if o.SoftStorage && storage > 0 {
		storage += int64(1+len(o.Pod.Spec.Containers)+len(o.Pod.Spec.InitContainers)) * softRoom(storage)
	}
	out := runtimev1.PodOptions{
		Network: o.Network, Accel: o.Accel, Cold: o.Template == "off", NoFork: o.Warm == "off",
		WholeCPU: ownLimit(o.Pod, corev1.ResourceCPU), WholeMemory: ownLimit(o.Pod, corev1.ResourceMemory),
		Unstated: !bounded(o.Pod, corev1.ResourceMemory), ScratchBytes: storage,
	}
	if group := fsGroup(o.Pod); group != nil {
		out.FSGroup = int(*group)
	}
	for _, v := range o.Pod.Spec.Volumes {
		if share, is := onHost(o, &v); is {
			if out.HostPaths == nil {
				out.HostPaths = map[string]containerv1.Share{}
			}
			out.HostPaths[v.Name] = share
			if place := o.Claimed[v.Name]; place.Disk {
				if out.Disks == nil {
					out.Disks = map[string]containerv1.Block{}
				}
				out.Disks[v.Name] = containerv1.Block{Name: share.Name, FS: containerv1.FSExt4, ReadOnly: place.ReadOnly}
			}
			if o.Pod.Annotations[annotations.Copy+v.Name] == annotations.CopyImage && v.PersistentVolumeClaim != nil && o.Claimed == nil {
				if out.Filled == nil {
					out.Filled = map[string]bool{}
				}
				out.Filled[v.Name] = true
			}
		}
		if v.EmptyDir == nil {
			continue
		}
		if dir := emptyDir(v.Name, v.EmptyDir); dir != (containerv1.Dir{Name: v.Name}) {
			if out.EmptyDirs == nil {
				out.EmptyDirs = map[string]containerv1.Dir{}
			}
			out.EmptyDirs[v.Name] = dir
		}
	}
	return out
}

// onHost returns the host path of a volume, or the name of a named volume.
func onHost(o *Options, v *corev1.Volume) (share containerv1.Share, is bool) {
	share.Cache = o.Pod.Annotations[annotations.Cache+v.Name]
	switch {
	case v.HostPath != nil:
		share.Name = v.HostPath.Path
	case volume.Claimed(&v.VolumeSource) && o.Claimed != nil:
		share.Name, share.Present = o.Claimed[v.Name].Path, true
	case v.PersistentVolumeClaim != nil:
		share.Name = containerv1.VolumeName(volume.NameOf(o.Pod.Namespace, v.PersistentVolumeClaim.ClaimName))
	}
	return share, share.Name != ""
}

func emptyDir(name string, source *corev1.EmptyDirVolumeSource) containerv1.Dir {
	dir := containerv1.Dir{Name: name}
	switch source.Medium {
	case corev1.StorageMediumMemory:
		dir.Medium = containerv1.Memory
	case corev1.StorageMediumHugePages, corev1.StorageMediumHugePagesPrefix + "2Mi":
		dir.Medium = containerv1.HugePages // there is one size
	}
	if source.SizeLimit != nil {
		dir.Size = source.SizeLimit.Value()
	}
	if source.Mode != nil {
		dir.Mode = uint32(*source.Mode)
	}
	return dir
}

// BeyondContainer returns the container's options for which the CRI has no fields.
func BeyondContainer(o *Options, container *corev1.Container) runtimev1.ContainerOptions {
	limit := container.Resources.Limits[corev1.ResourceEphemeralStorage]
	storage := limit.Value()
	if o.SoftStorage && storage > 0 {
		storage += softRoom(storage)
	}
	limits, _ := ulimit.ParseAll(o.Pod.Annotations[annotations.Ulimits+container.Name]) // Check has validated them
	out := runtimev1.ContainerOptions{StorageBytes: storage, Rlimits: limits}
	if container.TTY {
		out.Size = o.Size
	}
	return out
}

// softRoom returns how many bytes can be written beyond a soft limit of ephemeral storage.
func softRoom(limit int64) int64 { return max(limit/10, 16<<20) }

// Plain rejects a pod that needs more than a runtime with only the CRI offers. The error names the fields and matches
// ErrBeyondCRI.
func Plain(o *Options) error {
	beyond := Beyond(o)
	var fields []string
	for field, asked := range map[string]bool{
		"the choice of a network": beyond.Network != "", "the choice of an accelerator": beyond.Accel != "",
		"a boot without a template":                  beyond.Cold,
		"a VM without a fork":                        beyond.NoFork,
		"spec.resources.limits[cpu]":                 beyond.WholeCPU,
		"spec.resources.limits[memory]":              beyond.WholeMemory,
		"a container's limits[ephemeral-storage]":    beyond.ScratchBytes != 0,
		"spec.securityContext.fsGroup":               beyond.FSGroup != 0,
		"the medium, sizeLimit or mode of emptyDirs": len(beyond.EmptyDirs) > 0,
		"hostPaths and claims":                       len(beyond.HostPaths) > 0,
	} {
		if asked {
			fields = append(fields, field)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	slices.Sort(fields)
	return fmt.Errorf("%s: %w", strings.Join(fields, ", "), ErrBeyondCRI)
}
