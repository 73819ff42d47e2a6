package agentv1

import "strings"

// What Create.Spec may hold beside what OCI defines; the agent resolves it.

// The paths of PID namespaces, see PIDNamespace.
const (
	pidPod    = "bulkhead.pod"
	pidTarget = "bulkhead.container:"
)

// PIDNamespace is the path of the PID namespace of the pod's container of that id, and
// without one of the namespace that the pod's containers share. The inverse is
// ParsePIDNamespace.
func PIDNamespace(container string) string {
	if container == "" {
		return pidPod
	}
	return pidTarget + container
}

// ParsePIDNamespace is the inverse of PIDNamespace; ok is false for another path.
func ParsePIDNamespace(path string) (container string, ok bool) {
	if path == pidPod {
		return "", true
	}
	container, ok = strings.CutPrefix(path, pidTarget)
	return container, ok && container != ""
}

// The annotations.
const (
	AllDevices   = "io.bulkhead.all-devices" // "true": the container gets every device of its machine
	StorageLimit = "io.bulkhead.storage"     // how many bytes the container's writable layer may hold
)

// StrictGroups is the third part of a Process.User.Username ("1:2:strict",
// "name::strict") of which only the groups count that the specification names, and
// not those of the image's /etc/group.
const StrictGroups = "strict"
