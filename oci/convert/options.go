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
}

// File is a file that the administrator has allowed.
type File struct {
	Kind FileKind
	Path string // absolute
	// SHA256 and SHA512 are the required hashes of its content, in lower-case hexadecimal digits. One of them may be
	// empty. A Volume has none.
	SHA256, SHA512 string
}

// FileKind is the use of a File.
type FileKind string

// The kinds of files.
const (
	Kernel FileKind = "kernel"
	Initrd FileKind = "initrd"
	Image  FileKind = "image"
	Volume FileKind = "volume" // a directory that the annotation io.bulkhead.volumes may name
)

// Join is a VM that runs already.
type Join struct {
	SandboxID string
	// PID, IPC and UTS are the paths in the guest of the joined namespaces, see agentv1.Namespace. An empty PID is an
	// error if the specification names a PID namespace by path. An empty IPC or UTS means the VM's.
	PID, IPC, UTS string
}

// Host answers questions about the client's host, in the client's namespaces.
type Host interface {
	// Node describes the file at an absolute path. It follows links.
	Node(path string) (Node, error)
	// ShmBytes returns the size of the file system at a path in bytes if it is a tmpfs, else 0.
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
