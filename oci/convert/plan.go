package convert

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Plan is a converted specification. It shares no memory with the specification.
type Plan struct {
	ID     string
	Bundle string
	// Kind is the container's role in its pod, and SandboxID is the id of the pod's first container.
	Kind      oci.Kind
	SandboxID string

	// Guest is the specification for the guest's runtime. Its mounts of the host are mounts of package containerv1: a
	// Share named TreeName(n) is Trees[n]. Its root is Root. It has no hooks, and only annotations of package agentv1.
	Guest *specs.Spec
	Root  containerv1.Share
	// Trees are mounts that the door clones or makes on the host. The first is the root.
	Trees []Tree
	// MountPoints must exist in the root before it is cloned.
	MountPoints []MountPoint
	// StartContainer are hooks for the guest.
	StartContainer []containerv1.Hook
	// Hooks are the hooks that the door runs on the host, without StartContainer.
	Hooks containerv1.Hooks

	// Hostname, Domainname and Sysctls are the VM's. They are empty for a container that joins a VM.
	Hostname, Domainname string
	Sysctls              map[string]string
	// Size is the demand for a new VM. Demand is the container's own part.
	Size, Demand sizing.Demand
	// Boot are files that the VM boots instead of the usual ones.
	Boot Boot

	Namespaces Namespaces
	// UIDs and GIDs are the mappings of the container's user namespace, for the share server.
	UIDs, GIDs []specs.LinuxIDMapping
	// CgroupsPath is the path in the specification, and Resources are the resources for the group on the host.
	CgroupsPath string
	Resources   *specs.LinuxResources
	// Disks are block devices of the host for the VM. The guest's mounts name them by DiskName.
	Disks []Disk
	// NetDevices are names of the host's network devices for the container, and their names there.
	NetDevices map[string]string

	// Annotations are the specification's, for the record and for the container's state.
	Annotations map[string]string
	// Ignored are settings without an effect. The door logs them.
	Ignored []Note
}

// Boot are files of the host that the administrator has allowed. The door must check their content against the hash.
type Boot struct{ Kernel, Initrd, Image *File }
