package agentv1

import "strings"

// Extensions of OCI in Create.Spec. The agent resolves them.

// The paths of PID namespaces, see PIDNamespace.
const (
	pidPod    = "bulkhead.pod"
	pidTarget = "bulkhead.container:"
)

// PIDNamespace returns the path of the PID namespace of the pod's container with that id, or with "" the path of
// the namespace that the pod's containers share. ParsePIDNamespace is its inverse.
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
	AllDevices   = "io.bulkhead.all-devices" // "true": the container gets all devices of its VM
	StorageLimit = "io.bulkhead.storage"     // limit of the container's writable layer, in bytes
)

// StrictGroups is the third part of a Process.User.Username ("1:2:strict", "name::strict"). It means that only the
// groups in the specification count, and not those in the image's /etc/group.
const StrictGroups = "strict"
