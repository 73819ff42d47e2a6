package oci

import "fmt"

// Kind is what a container is to its pod.
type Kind string

// The kinds.
const (
	Single    Kind = "single"    // a pod of its own, of one container
	Sandbox   Kind = "sandbox"   // the pod itself
	Container Kind = "container" // one more container of a pod
)

// The keys by which callers tell, in the order in which they count.
var callers = []struct{ kind, sandbox, id string }{
	{"io.kubernetes.cri.container-type", "sandbox", "io.kubernetes.cri.sandbox-id"},
	{"io.kubernetes.cri-o.ContainerType", "sandbox", "io.kubernetes.cri-o.SandboxID"},
	{"io.kubernetes.docker.type", "podsandbox", "io.kubernetes.sandbox.id"},
}

// KindOf tells what the container with these annotations is. An unknown value
// is an error.
func KindOf(annotations map[string]string) (Kind, error) {
	for _, caller := range callers {
		switch value, found := annotations[caller.kind]; {
		case !found:
		case value == caller.sandbox:
			return Sandbox, nil
		case value == "container":
			return Container, nil
		default:
			return "", fmt.Errorf("%w: annotation %s has the unknown value %q", ErrInvalid, caller.kind, value)
		}
	}
	return Single, nil
}

// SandboxID is the id of the pod that the container named id is of: its own,
// unless it is one more container of a pod, whose annotations must name it.
func SandboxID(annotations map[string]string, id string) (string, error) {
	kind, err := KindOf(annotations)
	if err != nil || kind != Container {
		return id, err
	}
	for _, caller := range callers {
		if sandbox := annotations[caller.id]; sandbox != "" {
			return sandbox, nil
		}
	}
	return "", fmt.Errorf("%w: container %s does not name its sandbox", ErrInvalid, id)
}
