package agentv1

// What Create.Spec may hold beside what OCI defines; the agent resolves it.

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
