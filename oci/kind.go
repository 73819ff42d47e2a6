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

// Role returns the role of the container named id, and the id of its pod: its own, unless it is a further container. A
// container that names another pod than itself is a further one even without a kind, as in podman's pods. An unknown
// kind is ErrInvalid, and so is a further container without a pod.
func Role(annotations map[string]string, id string) (Kind, string, error) {
	kind, pod := Single, ""
	for _, caller := range callers {
		value, found := annotations[caller.kind]
		if !found {
			continue
		}
		switch value {
		case caller.sandbox:
			kind = Sandbox
		case "container":
			kind = Container
		default:
			return "", "", fmt.Errorf("%w: annotation %s has the unknown value %.64q", ErrInvalid, caller.kind, value)
		}
		break
	}
	for _, caller := range callers {
		if pod = annotations[caller.id]; pod != "" {
			break
		}
	}
	switch {
	case kind == Sandbox || kind == Single && (pod == "" || pod == id):
		return kind, id, nil
	case pod == "" || pod == id:
		return "", "", fmt.Errorf("%w: container %.64s does not name its sandbox", ErrInvalid, id)
	}
	return Container, pod, nil
}
