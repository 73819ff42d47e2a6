package layout

// What the services say beyond containerd's own API; the doors and the shim
// use the same words.
const (
	// ConfigType is the type URL of CreateSandbox's options: a sandbox.Config
	// in JSON. Scratch is the name that its disk is sent under, if it has one.
	ConfigType = "io.bulkhead.sandbox.Config+json"
	Scratch    = "scratch"
	// RehearsalImage is the name that Rehearse's image is sent under.
	RehearsalImage = "rehearsal"

	// DiskType is the type of a task's root mounts, each an image's disk: the
	// first is the root, the others are those that the specification's mounts
	// name. Their source is the image's id, their one option DiskOption with the
	// name of a sent file. The option may be missing when a container of the
	// same image is there already.
	DiskType   = "bulkhead-disk"
	DiskOption = "file="

	// StdioStream is a task's stdio for who opens ATTACH; StreamOnce a stdin that
	// ends with its first client. LogPrefix, with the name of a sent file, is
	// a log in the CRI format, for stdout and stderr together.
	StdioStream = "stream:"
	StreamOnce  = "stream:once"
	LogPrefix   = "log:"

	// MemoryAnnotation of an UpdateTaskRequest is what the machine is grown
	// to before the container's cgroup changes, in MiB. A request without an id is
	// about the whole pod; its resources are agentv1.PodLimits in JSON.
	MemoryAnnotation = "io.bulkhead.internal/memory-mib"
)
