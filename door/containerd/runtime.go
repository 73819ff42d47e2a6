// Package containerd serves containerd's Task and Sandbox services for the containers of one pod: it is the inside of the
// front, the process that containerd takes for a shim. A Runtime makes and drives the containers.
//
// The front holds no stream of a process. It opens the streams that containerd names (package stdio), gives the descriptors
// to the Runtime and forgets them. It mounts root file systems (package rootfs) and publishes events (package events).
package containerd

import (
	"context"
	"os"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Runtime makes and drives containers, which are named by their ids in one of containerd's namespaces. Its methods are safe
// for concurrent use. A call for one container does not wait for a call for another one.
type Runtime interface {
	// Create makes a container of a bundle. Its process runs after Start. If ctx ends, Create undoes everything. The
	// caller keeps its files.
	//
	// A bundle with the CRI's annotation container-type "sandbox" becomes a VM without a process of its own: the Process
	// is only accounted, and runs until it is killed.
	Create(ctx context.Context, c CreateOptions) (Process, error)
	// Start runs the process of a created container.
	Start(ctx context.Context, id string) error
	// Exec runs a further process in a container. If ctx ends, the process is killed. The caller keeps its files.
	Exec(ctx context.Context, e ExecOptions) (Process, error)
	// KillAll sends a signal to all processes in a container.
	KillAll(ctx context.Context, id string, signal unix.Signal) error
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
	// Update changes limits. resources is the JSON of the runtime specification's LinuxResources.
	Update(ctx context.Context, id string, resources []byte) error
	// Stats returns the container's usage as the guest sees it.
	Stats(ctx context.Context, id string) (*stats.Metrics, error)
	// Delete removes a container, and kills it first if it runs. When Delete returns, nothing uses the root file system any
	// more. Delete succeeds if the container does not exist. The VM ends with its last container, and with its pod.
	Delete(ctx context.Context, id string) error
}

// Process is a process in a container, as a process of the host stands for it. Its methods are safe for concurrent use.
type Process interface {
	// PID is the id of the host's process. It is never 0.
	PID() int
	// Wait waits for the end of the process. Its output has been written then, as far as it is read.
	Wait(ctx context.Context) (Exit, error)
	// Signal sends a signal to the process in the guest.
	Signal(ctx context.Context, signal unix.Signal) error
	// Resize sets the size of the process's terminal.
	Resize(ctx context.Context, width, height uint16) error
}

// Exit is the end of a process.
type Exit struct {
	Status int // 0 to 255: 128+n for signal n
	At     time.Time
	OOM    bool // the guest's kernel ended it, because it had no memory left
}

// Streams are a process's ends of its standard streams. A nil stdin is empty, and a nil output is discarded.
type Streams struct {
	Stdin, Stdout, Stderr *os.File
	// Terminal gives the process a terminal in the guest: its input is Stdin, and its output Stdout.
	Terminal bool
}

// CreateOptions describe a container.
type CreateOptions struct {
	ID     string
	Bundle string // absolute path
	Streams
	// VCPUs and MemoryMiB are the size of a VM for which the bundle states none; 0 means the Runtime's default.
	VCPUs, MemoryMiB int
	// Strict refuses settings that the Runtime otherwise ignores.
	Strict bool
	// SystemdCgroup means that cgroup paths have systemd's form.
	SystemdCgroup bool
}

// ExecOptions describe a further process of a container.
type ExecOptions struct {
	Container string
	ID        string // unique in the container
	Spec      []byte // JSON of the runtime specification's Process
	Streams
}

// errUnsupported is the error of a call that containers in VMs do not have.
var errUnsupported = errdefs.ErrNotImplemented.WithMessage("not supported for containers in virtual machines")
