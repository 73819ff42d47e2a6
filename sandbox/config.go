package sandbox

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/disks"
)

// ConfigVersion is the version of Config's stored form.
const ConfigVersion = 1

// Config is the configuration of a pod's VM. The door that creates the sandbox writes it once, before the VM starts; it
// never changes. It holds no environment and no secrets.
type Config struct {
	Version     int               `json:"version"`
	ID          string            `json:"id"`       // 64 hexadecimal digits
	Instance    string            `json:"instance"` // the engine that owns it
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	UID         string            `json:"uid"`
	Attempt     uint32            `json:"attempt"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"created"`

	Hostname  string              `json:"hostname"`
	Resolv    string              `json:"resolv"`
	Hosts     string              `json:"hosts"`
	Sysctls   map[string]string   `json:"sysctls,omitempty"`
	Network   *agentv1.Network    `json:"network,omitempty"`
	Cards     []agentv1.Network   `json:"cards,omitempty"` // further interfaces
	VM        hypervisor.VMConfig `json:"machine"`
	MemoryMiB int                 `json:"memoryMiB"` // memory of the VM before its first container starts
	Limits    agentv1.PodLimits   `json:"limits,omitzero"`
	// ScratchBytes bounds the pod's use of its scratch disk; 0 is the whole disk.
	ScratchBytes int64 `json:"scratchBytes,omitempty"`
	// LogBytes bounds the file of a container's log; 0 is no limit. When the file is full, the container waits until
	// the log is rotated (ReopenLog), which is up to the caller that sets the limit.
	LogBytes int64 `json:"logBytes,omitempty"`
}

// ContainerConfig is the configuration of a container.
type ContainerConfig struct {
	ID string
	// Root is the container's root file system. Containers of one image share its disk.
	Root containerv1.Root
	// RootFile is the file of Root: an image's EROFS disk, or a block device. It may be nil for a disk that the VM
	// already has. CreateContainer closes it.
	RootFile *os.File
	// Volumes are further images and block devices, to which the spec's mounts refer. CreateContainer closes their
	// disks.
	Volumes []Volume
	// Spec is the OCI runtime specification. It holds the environment, so it is never stored.
	Spec     json.RawMessage
	Terminal bool
	// Stdio describes the standard streams. Attach feeds a stdin, and AttachFiles feeds the stdin of Descriptors.
	Stdio containerv1.Stdio
	// Log is the file of a containerv1.Log. CreateContainer closes it.
	Log *os.File
}

// Volume is an image or a block device that a container has beside its root.
type Volume struct {
	// ID is the image's id, or the block device's name in the VM.
	ID string
	// Disk may be nil for a disk that the VM already has.
	Disk *os.File
	// Block tells the VM how to use a block device; it is nil for an image.
	Block *containerv1.Block
}

// disk converts the volume for the VM's slots.
func (v Volume) disk() disks.Disk {
	if v.Block == nil {
		return disks.Image(v.ID)
	}
	return disks.Disk{Name: v.ID, FS: string(v.Block.FS), ReadOnly: v.Block.ReadOnly, Volume: true}
}

// disks returns all disks of the container, its root's first.
func (c *ContainerConfig) disks() []Volume {
	var root Volume
	switch of := c.Root.(type) {
	case containerv1.Image:
		root = Volume{ID: of.ID, Disk: c.RootFile}
	case containerv1.Block:
		root = Volume{ID: of.Name, Disk: c.RootFile, Block: &of}
	default:
		return c.Volumes
	}
	return append([]Volume{root}, c.Volumes...)
}

// ExecConfig is the configuration of an exec'd process.
type ExecConfig struct {
	Process
	// Spec is the OCI process.
	Spec     json.RawMessage
	Terminal bool
	// Stdio is a containerv1.Stream, Discard or Descriptors.
	Stdio containerv1.Stdio
}

// Streams are a client of Attach. A nil stream is not attached.
type Streams struct {
	// Stdin feeds the process until it returns io.EOF or another error. That closes the process's stdin if the process
	// is exec'd or has containerv1.StdinOnce. If Stdin is an io.Closer, Attach closes it before it returns, which ends
	// a blocked Read.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Starter starts the pod's VM: a clone of a template or a cold boot. A Starter that fails leaves no process.
type Starter func(ctx context.Context) (hypervisor.VM, error)

// Adopter takes over the running VM, or returns an error that matches hypervisor.ErrGone if it has ended.
type Adopter func(ctx context.Context, r hypervisor.Record) (hypervisor.VM, error)

// Options are the shim's settings for a sandbox.
type Options struct {
	// ID is the pod's sandbox id; empty for a VM without a pod (Rehearse).
	ID string
	// StateDir is the sandbox's own directory, which exists.
	StateDir string
	// StartVM starts the VM; it is called once for every start.
	StartVM Starter
	// Mounted reports that the first VM that StartVM starts has the pod's scratch disk mounted already.
	Mounted bool
	// Adopt takes over the VM for Restore.
	Adopt Adopter
	// Events receives every event in order, from one goroutine at a time. It must not block and must not call the
	// sandbox. It may be nil.
	Events func(Event)
	// Logger receives errors that cannot be returned to a caller; nil discards them.
	Logger *slog.Logger
	// BootTimeout bounds the wait for the VM and its agent's first answer. 0 is a minute, enough for a cold boot under
	// emulation.
	BootTimeout time.Duration
	// Patience is the time that a healthy clone needs for its first answer on this host at the moment. After that
	// silence the shim connects to the agent again. After PatienceTimes as long it gives the VM up with context.DeadlineExceeded. 0
	// means BootTimeout in all.
	Patience time.Duration
	// CallTimeout bounds each call to the agent that does not wait for a
	// process; 0 is 30 seconds.
	CallTimeout time.Duration
}

// PatienceTimes times Options.Patience is the limit for a VM to be up: its own start, a first connection, and a second
// one that gets twice as long.
const PatienceTimes = 4

// bootLimit bounds the wait for the VM and its agent's first answer.
func (o Options) bootLimit() time.Duration {
	if o.Patience > 0 {
		return PatienceTimes * o.Patience
	}
	return o.BootTimeout
}

// Files are the descriptors that Create takes over. The sandbox closes them.
type Files struct {
	// Scratch is the ext4 disk with the pod's writable layers and volumes. nil keeps them in memory.
	Scratch *os.File
	// Cards are the taps of Config.Cards. The first VM takes them, so a sandbox with further interfaces can be started
	// only once.
	Cards []*os.File
}

func (f Files) close() {
	for _, file := range append([]*os.File{f.Scratch}, f.Cards...) {
		if file != nil {
			closeQuietly(file)
		}
	}
}

// RestoreFiles are the descriptors that a new shim receives again. The sandbox closes them, used or not.
type RestoreFiles struct {
	// Scratch is as in Files. Only a later start needs it.
	Scratch *os.File
	// Logs are the containers' log files by container id. Without its file, a container's output stays in the guest
	// until ReopenLog.
	Logs map[string]*os.File
}

// flushTimeout bounds the guest's flush before its VM is killed, and killTimeout the kill itself.
const (
	flushTimeout = 5 * time.Second
	killTimeout  = 30 * time.Second
)

func (o Options) withDefaults() Options {
	if o.BootTimeout == 0 {
		o.BootTimeout = time.Minute
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
