package sandbox

import (
	"encoding/json"
	"io"
	"os"
)

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
