package agentv1

import "strings"

// Extensions of OCI in Create.Spec. The agent resolves them.

// The paths of namespaces, see Namespace.
const (
	ofPod       = "bulkhead.pod"
	ofContainer = "bulkhead.container:"
)

// Namespace returns the path of the PID, IPC or UTS namespace of the pod's container with that id. With "" it is the path
// of the namespace that the pod's containers share; for IPC and UTS that is the VM's. ParseNamespace is its inverse.
func Namespace(container string) string {
	if container == "" {
		return ofPod
	}
	return ofContainer + container
}

// ParseNamespace is the inverse of Namespace; ok is false for another path.
func ParseNamespace(path string) (container string, ok bool) {
	if path == ofPod {
		return "", true
	}
	container, ok = strings.CutPrefix(path, ofContainer)
	return container, ok && container != ""
}

// The annotations.
const (
	AllDevices   = "io.bulkhead.all-devices" // "true": the container gets all devices of its VM
	StorageLimit = "io.bulkhead.storage"     // limit of the container's writable layer, in bytes
	// Verbatim, if "true", means that the specification describes the whole container, as for any OCI runtime: the agent
	// adds no file or variable, and the process's user are the numbers. A command that cannot run is errdefs.ErrInvalidArgument in Create,
	// and all such errors are in the words of runc.
	Verbatim = "io.bulkhead.verbatim"
	// SeccompFilter is the compiled filter of system calls in base64. The specification's seccomp then has only flags and
	// the default action.
	SeccompFilter = "io.bulkhead.seccomp-filter"
)

// StrictGroups is the third part of a Process.User.Username ("1:2:strict", "name::strict"). It means that only the
// groups in the specification count, and not those in the image's /etc/group.
const StrictGroups = "strict"
