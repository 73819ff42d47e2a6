package sandbox

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
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

	Hostname  string             `json:"hostname"`
	Resolv    string             `json:"resolv"`
	Hosts     string             `json:"hosts"`
	Sysctls   map[string]string  `json:"sysctls,omitempty"`
	Network   *agentv1.Network   `json:"network,omitempty"`
	ShmBytes  int64              `json:"shmBytes,omitempty"`
	Machine   hypervisor.Machine `json:"machine"`
	MemoryMiB int                `json:"memoryMiB"` // what the machine is grown to before its first container
	Limits    agentv1.PodLimits  `json:"limits,omitzero"`
	// ScratchBytes is what the pod may write to its scratch disk; 0 is all of it.
	ScratchBytes int64 `json:"scratchBytes,omitempty"`
}

// Output says where a process's output goes.
type Output string

// The outputs. OutputStream goes to the one client of Attach and waits for it,
// from the process's start to the client's end, after which it is discarded.
const (
	OutputLog     Output = "log"
	OutputStream  Output = "stream"
	OutputDiscard Output = "discard"
)

// ContainerConfig is what a container is made from. Of it only what JSON
// keeps is stored: the spec, which holds the environment, is not.
type ContainerConfig struct {
	ID string `json:"id"`
	// ImageID names the image; containers of one image share its disk.
	ImageID string `json:"imageID"`
	// ImageDisk is the image's EROFS disk. CreateContainer closes it.
	ImageDisk *os.File `json:"-"`
	// Volumes are more images, which the spec's mounts name. CreateContainer
	// closes their disks.
	Volumes []ImageVolume `json:"volumes,omitempty"`
	// Spec is the OCI runtime specification.
	Spec     json.RawMessage `json:"-"`
	Terminal bool            `json:"terminal,omitempty"`
	// Stdin gives the process a stdin that Attach feeds; StdinOnce closes it
	// when the first client that feeds it has ended.
	Stdin     bool   `json:"stdin,omitempty"`
	StdinOnce bool   `json:"stdinOnce,omitempty"`
	Output    Output `json:"output"`
	// Log receives the output in the CRI format when Output is OutputLog.
	// The sandbox closes it.
	Log *os.File `json:"-"`
}

// ImageVolume is an image that a container mounts beside its own.
type ImageVolume struct {
	ID   string   `json:"id"`
	Disk *os.File `json:"-"`
}

// images are all of the container's, its own first.
func (c *ContainerConfig) images() []ImageVolume {
	return append([]ImageVolume{{c.ImageID, c.ImageDisk}}, c.Volumes...)
}

// ExecConfig is one more process for a running container.
type ExecConfig struct {
	Process
	// Spec is the OCI process.
	Spec     json.RawMessage
	Terminal bool
	Stdin    bool
	// Output is OutputStream or OutputDiscard.
	Output Output
}

// Streams are a client of Attach: what is nil is not attached.
type Streams struct {
	// Stdin feeds the process until it returns io.EOF or another error; that
	// closes the process's stdin if it is an exec'd process or has StdinOnce.
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
	// ID is the pod's sandbox id; empty for a member of the pool, which gets
	// it with Create.
	ID string
	// StateDir is the sandbox's own directory, which exists.
	StateDir string
	// Machine starts the machine; it is called once for every start.
	Machine Starter
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
	// CallTimeout bounds each call to the agent that does not wait for a
	// process; 0 is 30 seconds.
	CallTimeout time.Duration
}

// Files are the descriptors that Create takes over; the sandbox closes them.
type Files struct {
	// Scratch is the disk of the pod's writable layers and volumes, ext4, or
	// nil for memory.
	Scratch *os.File
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
