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

// Config is what a pod's machine is made from. The door that creates the
// sandbox writes it, once, before the machine starts; nothing changes it later.
// It holds no environment and no secret.
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
	Machine   hypervisor.VMConfig `json:"machine"`
	MemoryMiB int                 `json:"memoryMiB"` // what the machine is grown to before its first container
	Limits    agentv1.PodLimits   `json:"limits,omitzero"`
	// ScratchBytes is what the pod may write to its scratch disk; 0 is all of it.
	ScratchBytes int64 `json:"scratchBytes,omitempty"`
	// LogBytes is what the file of a container's log may hold; 0 is no limit. When it
	// is full the container waits until the log is begun anew (ReopenLog), which is
	// for who sets the limit to see to.
	LogBytes int64 `json:"logBytes,omitempty"`
}

// ContainerConfig is what a container is made from.
type ContainerConfig struct {
	ID string
	// Root is the container's root file system. Containers of one image share its disk.
	Root containerv1.Root
	// RootFile is what Root names: an image's EROFS disk, or a block device. It may be nil
	// for one that the machine has. CreateContainer closes it.
	RootFile *os.File
	// Volumes are more images, and block devices, which the spec's mounts name.
	// CreateContainer closes their disks.
	Volumes []Volume
	// Spec is the OCI runtime specification, which is stored nowhere: it holds the
	// environment.
	Spec     json.RawMessage
	Terminal bool
	// Stdio is where the standard streams lead. Attach feeds a stdin.
	Stdio containerv1.Stdio
	// Log is the file of a containerv1.Log. CreateContainer closes it.
	Log *os.File
}

// Volume is a disk that a container has beside its root: an image's, or a block device.
type Volume struct {
	// ID is an image's, or the block device's name in the machine.
	ID string `json:"id"`
	// Disk may be nil for one that the machine has.
	Disk *os.File `json:"-"`
	// Block says what the machine does with a block device; it is nil for an image.
	Block *containerv1.Block `json:"-"`
}

// disk is the volume as a machine's slots know it.
func (v Volume) disk() disks.Disk {
	if v.Block == nil {
		return disks.Image(v.ID)
	}
	return disks.Disk{Name: v.ID, FS: string(v.Block.FS), ReadOnly: v.Block.ReadOnly, Volume: true}
}

// disks are all of the container's, its root's first.
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

// ExecConfig is one more process for a running container.
type ExecConfig struct {
	Process
	// Spec is the OCI process.
	Spec     json.RawMessage
	Terminal bool
	// Stdio is a containerv1.Stream or Discard.
	Stdio containerv1.Stdio
}

// Streams are a client of Attach: what is nil is not attached.
type Streams struct {
	// Stdin feeds the process until it returns io.EOF or another error; that
	// closes the process's stdin if it is an exec'd process or has containerv1.StdinOnce.
	// When it is an io.Closer, Attach closes it before it returns, so that a
	// Read under way ends.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Starter makes the pod's machine: a clone of a template or a cold boot. One
// that fails leaves no process.
type Starter func(ctx context.Context) (hypervisor.VM, error)

// Adopter takes over the machine that runs already, or returns an error that
// matches hypervisor.ErrGone if it runs no more.
type Adopter func(ctx context.Context, r hypervisor.Record) (hypervisor.VM, error)

// Options are what a sandbox needs from its shim.
type Options struct {
	// ID is the pod's sandbox id; empty for a machine without one (Rehearse).
	ID string
	// StateDir is the sandbox's own directory, which exists.
	StateDir string
	// Machine starts the machine; it is called once for every start.
	Machine Starter
	// Mounted says that the first machine that Machine starts has the pod's scratch disk
	// mounted already.
	Mounted bool
	// Adopt is what Restore takes the machine over with.
	Adopt Adopter
	// Events gets every event in the order it happened, from one goroutine at
	// a time; it must not block and must not call the sandbox. Nil for none.
	Events func(Event)
	// Logger is for what no caller asked; nil discards.
	Logger *slog.Logger
	// BootTimeout bounds the wait for the machine and its agent's first
	// answer; 0 is a minute, enough for a cold boot under emulation.
	BootTimeout time.Duration
	// Patience is what a healthy clone's first answer may take on this host now.
	// The agent is connected to again when it has been silent for so long, and
	// the machine is given up, with ErrTimeout, after PatienceTimes as long. 0 is
	// BootTimeout in all.
	Patience time.Duration
	// CallTimeout bounds each call to the agent that does not wait for a
	// process; 0 is 30 seconds.
	CallTimeout time.Duration
}

// PatienceTimes is how many times Options.Patience a machine has to be up: its own
// start, a first connection, and a second one that gets twice as long.
const PatienceTimes = 4

// bootLimit bounds the wait for the machine and its agent's first answer.
func (o Options) bootLimit() time.Duration {
	if o.Patience > 0 {
		return PatienceTimes * o.Patience
	}
	return o.BootTimeout
}

// Files are the descriptors that Create takes over; the sandbox closes them.
type Files struct {
	// Scratch is the disk of the pod's writable layers and volumes, ext4, or
	// nil for memory.
	Scratch *os.File
	// Cards are the taps of Config.Cards. The machine of the first start has them then; a
	// sandbox with further interfaces is started once.
	Cards []*os.File
}

func (f Files) close() {
	for _, file := range append([]*os.File{f.Scratch}, f.Cards...) {
		if file != nil {
			closeQuietly(file)
		}
	}
}

// RestoreFiles are the descriptors that a new shim is given again. The
// sandbox closes them, used or not.
type RestoreFiles struct {
	// Scratch is as in Files. It is needed for a later start only.
	Scratch *os.File
	// Logs are the containers' log files by container id. The output of a
	// container whose log is missing is kept in the guest until ReopenLog.
	Logs map[string]*os.File
}

// flushTimeout bounds the guest's flush before its machine is ended, and
// killTimeout the end itself.
const (
	flushTimeout = 5 * time.Second
	killTimeout  = 30 * time.Second
	lockTimeout  = 10 * time.Second
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
