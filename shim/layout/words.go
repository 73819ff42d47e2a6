package layout

import "strconv"

// Names used beyond containerd's API, shared by the doors and the shim.
const (
	// ConfigType is the type URL of CreateSandbox's options: a sandbox.Config in JSON. Scratch is the name under which
	// its disk is sent, if it has one.
	ConfigType = "io.bulkhead.sandbox.Config+json"
	Scratch    = "scratch"

	// MemoryAnnotation of an UpdateTaskRequest is the VM's memory before the container's cgroup changes, in MiB. A
	// request without an id is for the whole pod; its resources are agentv1.PodLimits in JSON.
	MemoryAnnotation = "io.bulkhead.internal/memory-mib"
	// VolumeAnnotation of an UpdateTaskRequest without an id names a volume of the VM. Only that volume changes: it
	// grows to BytesAnnotation.
	VolumeAnnotation = "io.bulkhead.internal/volume"
	BytesAnnotation  = "io.bulkhead.internal/volume-bytes"
	// ReleaseAnnotation of an UpdateTaskRequest without an id detaches the volumes that no container uses, and changes
	// nothing else.
	ReleaseAnnotation = "io.bulkhead.internal/release-volumes"
)

// Card returns the name under which the tap of a further interface is sent, counted from 0.
func Card(number int) string { return "card-" + strconv.Itoa(number) }
