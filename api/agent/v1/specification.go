package agentv1

// What Create.Spec may hold beside what OCI defines; the agent resolves it.

// The types of mounts. Their options, beside the usual ones, are "group=GID"
// (fsGroup) and "subpath=PATH": what is mounted instead of the whole.
const (
	// MountEmptyDir is an emptyDir of the pod; its source is the volume's name. It
	// may have the options "medium=Memory", "medium=HugePages", "size=BYTES" and
	// "mode=OCTAL". A subpath that is missing is made.
	MountEmptyDir = "bulkhead.emptydir"
	// MountFiles is a volume whose files have come before (OpFiles); its source is
	// the volume's name. A subpath that is missing is made.
	MountFiles = "bulkhead.files"
	// MountImage is an image; its source is the Name of a mounted disk. A subpath
	// must be there, and there is no group.
	MountImage = "bulkhead.image"
	// MountFile is a file that the agent writes; its source is the content.
	// Containers with the same content at the same place share it.
	MountFile = "bulkhead.file"
	// MountTermination is the file in which the container leaves its last words.
	MountTermination = "bulkhead.termination"
)

// The paths of PID namespaces.
const (
	PIDPod    = "bulkhead.pod"        // the one that the pod's containers share
	PIDTarget = "bulkhead.container:" // the one of the container whose id follows
)

// The annotations.
const (
	AllDevices   = "io.bulkhead.all-devices" // "true": the container gets every device of its machine
	StorageLimit = "io.bulkhead.storage"     // how many bytes the container's writable layer may hold
)

// StrictGroups is the third part of a Process.User.Username ("1:2:strict",
// "name::strict") of which only the groups count that the specification names, and
// not those of the image's /etc/group.
const StrictGroups = "strict"
