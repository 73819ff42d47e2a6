// Package runtime describes the runtime of a node's pods. Package local is an engine in the node's process, and package
// endpoint is another program.
package runtime

import (
	"context"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

// Runtime runs the pods of a node.
type Runtime interface {
	Streams
	Backend() Backend
	Close(context.Context) error
}

// Streams connects HTTP clients with the streams of a runtime. It returns an error only if it has not answered the
// client.
type Streams interface {
	Exec(w http.ResponseWriter, r *http.Request, what *runtimeapi.ExecRequest) error
	Attach(w http.ResponseWriter, r *http.Request, what *runtimeapi.AttachRequest) error
	PortForward(w http.ResponseWriter, r *http.Request, what *runtimeapi.PortForwardRequest) error
}

// Backend is the runtime below a node, with optional abilities beyond the CRI. A nil function means that the runtime
// lacks the ability.
type Backend struct {
	Runtime     internalapi.RuntimeService
	Images      internalapi.ImageManagerService
	Dial        func(ctx context.Context, sandbox string, port int) (net.Conn, error)
	Pauses      func(sandbox string) (times uint64, now bool)
	Resume      func(ctx context.Context, sandbox string) error
	Allocatable func(ctx context.Context, sandbox string) (corev1.ResourceList, error)
	// Usages returns the resource usage of the runtime's pods, with their emptyDirs by name. If it is nil, the node
	// uses the CRI's statistics.
	Usages func(ctx context.Context) ([]usage.Pod, error)
	// HeldMemory returns the host memory that removing a sandbox would free, in bytes. It returns false if the runtime
	// does not count it.
	HeldMemory func(sandbox string) (bytes int64, known bool)
	// HeldDisk returns the disk space that removing a sandbox would free, in bytes. It is nil if the runtime does not
	// count it.
	HeldDisk func(sandbox string) int64
	// Refuse names a feature that a pod requests and the runtime cannot provide, or returns "".
	Refuse func(*corev1.Pod) string
	// Network is the kind of network for pods without host network, as engine.Resolver names it.
	Network string
	// Places are the rules for host paths that pods cannot have.
	Places place.Rules
}
