// Package usage describes the resource usage of pods, as the runtime and the host report it.
package usage

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is the resource usage of a pod. Its guest reports it and may lie, except about logs and claims.
type Pod struct {
	// Stats are the runtime's statistics of the pod and its containers.
	Stats *runtimeapi.PodSandboxStats
	// Logs is the size of the containers' log directories by container name.
	Logs map[string]Files
	// Volumes are the volumes with known usage.
	Volumes []Volume
}

// Files is a number of bytes and of inodes.
type Files struct{ Bytes, Inodes uint64 }

// Plus returns the sum of both.
func (f Files) Plus(g Files) Files { return Files{f.Bytes + g.Bytes, f.Inodes + g.Inodes} }

// Volume is the usage and the capacity of a volume.
type Volume struct {
	Name string
	// Ephemeral marks an emptyDir on disk, which counts as ephemeral storage of the pod.
	Ephemeral bool
	// Claim is the volume's PersistentVolumeClaim, or "".
	Claim string
	Files
	Capacity, Available uint64
	// AllInodes and InodesFree are known only for file systems that the host mounts.
	AllInodes, InodesFree uint64
}

// Container returns the size of a container's layer and logs.
func (p *Pod) Container(name string) (sum Files) {
	for _, c := range p.Stats.GetLinux().GetContainers() {
		if layer := c.GetWritableLayer(); layer != nil && c.GetAttributes().GetMetadata().GetName() == name {
			sum = sum.Plus(Files{layer.GetUsedBytes().GetValue(), layer.GetInodesUsed().GetValue()})
		}
	}
	return sum.Plus(p.Logs[name])
}

// Ephemeral returns the ephemeral storage of a pod: its containers' layers, their logs and its emptyDirs on disk.
func (p *Pod) Ephemeral() (sum Files) {
	for _, c := range p.Stats.GetLinux().GetContainers() {
		if layer := c.GetWritableLayer(); layer != nil {
			sum = sum.Plus(Files{layer.GetUsedBytes().GetValue(), layer.GetInodesUsed().GetValue()})
		}
	}
	for _, v := range p.Volumes {
		if v.Ephemeral {
			sum = sum.Plus(v.Files)
		}
	}
	return sum.Plus(p.AllLogs())
}

// AllLogs returns the size of all containers' logs.
func (p *Pod) AllLogs() (sum Files) {
	for _, logs := range p.Logs {
		sum = sum.Plus(logs)
	}
	return sum
}
