package containerv1

import "time"

// Hooks are the commands of a container's client, by the Point at which they run, in order. A door runs them on the host,
// except the hooks at StartContainer: those are in the guest's specification.
type Hooks map[Point][]Hook

// Hook is a command of a container's client.
type Hook struct {
	// Path is absolute: inside the container for StartContainer, on the host for all other points. Args begin with
	// the command's name.
	Path      string
	Args, Env []string
	// Timeout ends the command with a failure; 0 means no timeout.
	Timeout time.Duration
}

// Point is a moment in a container's life, named as OCI's runtime specification names it.
type Point string

// The points, in the order in which a container reaches them.
const (
	Prestart        Point = "prestart"        // during create, on the host; deprecated by OCI
	CreateRuntime   Point = "createRuntime"   // during create, on the host
	CreateContainer Point = "createContainer" // during create, in the container's namespaces, before its root is
	StartContainer  Point = "startContainer"  // during start, inside the container, before its process
	Poststart       Point = "poststart"       // on the host, after the container's process has started
	Poststop        Point = "poststop"        // on the host, after the container has been deleted
)
