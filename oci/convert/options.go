package convert

import "github.com/bulkhead-project/bulkhead/sandbox/sizing"

// Options are facts about the container's client and host.
type Options struct {
	// ID is the container's id at the client, and Bundle is the absolute path of its bundle.
	ID, Bundle string
	// Strict refuses every setting that is otherwise ignored. The annotation io.bulkhead.strict has the same effect.
	Strict bool
	// Allowed are the files that an annotation or the field vm may select.
	Allowed []File
	// Defaults is the demand of a VM without any stated size. It must fit the host.
	Defaults sizing.Demand
	// Nested reports whether the VM has /dev/kvm.
	Nested bool
	// Host answers questions about the host; nil means Local.
	Host Host
	// Join returns the VM that the container joins because one of its namespaces belongs to it, or nil. The function
	// may be nil; then only annotations count.
	Join func(Namespaces) (*Join, error)
	// Unknown are fields of config.json that specs.Spec does not have.
	Unknown []string
}

// File is a file that the administrator has allowed.
type File struct {
	Kind string // "kernel", "initrd" or "image"
	Path string
	// SHA256 is the required hash of its content, in lower-case hexadecimal digits.
	SHA256 string
}

// Join is a VM that runs already.
type Join struct {
	SandboxID string
	// PID is the path in the guest of the joined PID namespace, see agentv1.PIDNamespace. It is empty if the container
	// joins none.
	PID string
}

// Host answers questions about the client's host, in the client's namespaces.
type Host interface {
	// Node describes the file at an absolute path. It follows links.
	Node(path string) (Node, error)
	// ShmBytes returns the size of the file system at a path, in bytes.
	ShmBytes(path string) (int64, error)
}

// Node is a file of the host.
type Node struct {
	Type         NodeType
	Major, Minor uint32 // of a device
	Mode         uint32 // permissions
	GID          uint32
}

// NodeType is the type of a file.
type NodeType string

// The types of files.
const (
	Regular NodeType = "file"
	Dir     NodeType = "directory"
	Socket  NodeType = "socket"
	FIFO    NodeType = "fifo"
	Char    NodeType = "character device"
	Block   NodeType = "block device"
)

// DefaultSize is the demand of a VM if neither the client nor the administrator states a size: 2 CPUs and 1 GiB.
var DefaultSize = SizeOf(2, 1024)

// SizeOf returns the demand for a VM with that many CPUs, without a limit of their time, and that much memory.
func SizeOf(vcpus, memoryMiB int) sizing.Demand {
	return sizing.Demand{Shares: uint64(vcpus) * 1024, MemoryLimit: int64(max(memoryMiB-sizing.Default.OverheadMiB, 1)) << 20}
}
