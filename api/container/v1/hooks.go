package containerv1

import (
	"fmt"
	"slices"
	"time"
)

// Hooks are the commands that a container's client wants run, in their order, by the
// Point at which they run.
type Hooks map[Point][]Hook

// Hook is a command of a container's client.
type Hook struct {
	// Path is absolute: inside the container for StartContainer, on the host for all
	// other points. Args begin with the command's own name.
	Path      string
	Args, Env []string
	// Timeout ends the command, which has then failed; 0 is none.
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

// points are all that there are.
var points = []Point{Prestart, CreateRuntime, CreateContainer, StartContainer, Poststart, Poststop}

// check refuses a hook, and a point that is none.
func (h Hooks) check() error {
	for point := range h {
		if !slices.Contains(points, point) {
			return fmt.Errorf("%w: hook at the unknown point %.32q", ErrInvalid, string(point))
		}
	}
	for _, point := range points {
		if hooks := h[point]; len(hooks) > 0 {
			return unsupported("a %s hook (%.128q)", point, hooks[0].Path)
		}
	}
	return nil
}
