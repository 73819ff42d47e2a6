package layout

import "strconv"

// What the services say beyond containerd's own API; the doors and the shim
// use the same words.
const (
	// ConfigType is the type URL of CreateSandbox's options: a sandbox.Config
	// in JSON. Scratch is the name that its disk is sent under, if it has one.
	ConfigType = "io.bulkhead.sandbox.Config+json"
	Scratch    = "scratch"

	// MemoryAnnotation of an UpdateTaskRequest is what the machine is grown
	// to before the container's cgroup changes, in MiB. A request without an id is
	// about the whole pod; its resources are agentv1.PodLimits in JSON.
	MemoryAnnotation = "io.bulkhead.internal/memory-mib"
	// VolumeAnnotation of an UpdateTaskRequest without an id names a volume of the machine's that
	// is grown to BytesAnnotation. Nothing else of the pod changes then.
	VolumeAnnotation = "io.bulkhead.internal/volume"
	BytesAnnotation  = "io.bulkhead.internal/volume-bytes"
	// ReleaseAnnotation of an UpdateTaskRequest without an id has the machine let go of the volumes that no
	// container uses. Nothing else of the pod changes then.
	ReleaseAnnotation = "io.bulkhead.internal/release-volumes"
)

// Card is the name that the tap of a further interface is sent under, from 0 on.
func Card(number int) string { return "card-" + strconv.Itoa(number) }
