package oci

import "fmt"

// Kind is the role of a container in its pod.
type Kind string

// The kinds.
const (
	Single    Kind = "single"    // the only container of a pod
	Sandbox   Kind = "sandbox"   // the pod itself
	Container Kind = "container" // a further container of a pod
)

// The annotations of different callers, in order of precedence.
var callers = []struct{ kind, sandbox, id string }{
	{"io.kubernetes.cri.container-type", "sandbox", "io.kubernetes.cri.sandbox-id"},
	{"io.kubernetes.cri-o.ContainerType", "sandbox", "io.kubernetes.cri-o.SandboxID"},
	{"io.kubernetes.docker.type", "podsandbox", "io.kubernetes.sandbox.id"},
}

// KindOf returns the kind of a container with these annotations. An unknown value is an error.
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

// SandboxID returns the id of the pod of the container named id. It is the container's own id, unless the container is
// a further one of a pod; then the annotations must name the pod.
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
