// Package usage is what pods use, as a runtime and the node's machine tell it.
package usage

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is what a pod uses. Its guest tells it, and may lie, but for logs and claims.
type Pod struct {
	// Stats are the runtime's figures of the pod and its containers.
	Stats *runtimeapi.PodSandboxStats
	// Logs are what lies in the directories of the containers' logs, by the names of containers.
	Logs map[string]Files
	// Volumes are those of which it is known what lies in them.
	Volumes []Volume
}

// Files are so many, of so many bytes together.
type Files struct{ Bytes, Inodes uint64 }

// Plus is the sum of both.
func (f Files) Plus(g Files) Files { return Files{f.Bytes + g.Bytes, f.Inodes + g.Inodes} }

// Volume is what lies in a volume, and what it may hold.
type Volume struct {
	Name string
	// Ephemeral says that what lies in it is ephemeral storage of the pod: an emptyDir that is on the disk.
	Ephemeral bool
	// Claim is the PersistentVolumeClaim whose volume it is; empty is none.
	Claim string
	Files
	Capacity, Available uint64
	// AllInodes and InodesFree of its file system are known only where it is the host's.
	AllInodes, InodesFree uint64
}

// Container is what a container has written: to its layer, and to its logs.
func (p *Pod) Container(name string) (sum Files) {
	for _, c := range p.Stats.GetLinux().GetContainers() {
		if layer := c.GetWritableLayer(); layer != nil && c.GetAttributes().GetMetadata().GetName() == name {
			sum = sum.Plus(Files{layer.GetUsedBytes().GetValue(), layer.GetInodesUsed().GetValue()})
		}
	}
	return sum.Plus(p.Logs[name])
}

// Ephemeral is all that the pod has of ephemeral storage: what its containers have written, their logs and its emptyDirs on
// the disk.
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

// AllLogs are those of all containers together.
func (p *Pod) AllLogs() (sum Files) {
	for _, logs := range p.Logs {
		sum = sum.Plus(logs)
	}
	return sum
}
