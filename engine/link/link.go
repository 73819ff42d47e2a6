// Package link connects an engine to the shims of its pods. A shim is as untrusted as the guest that it serves:
// this package bounds its answers.
package link

import (
	"context"
	"os"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/shim"
)

// CallTimeout bounds a call to a shim, except waits for a process or for a VM's start. The shim's own bounds for
// calls to the agent are shorter.
const CallTimeout = 45 * time.Second

// Shims starts and finds shims; tests have a fake.
type Shims interface {
	// Start starts a pod's first shim, and with it the VM.
	Start(ctx context.Context, o shim.Options) (*Conn, error)
	// Connect connects to the shim of dir. The error matches shim.ErrNotRunning if there is none.
	Connect(ctx context.Context, dir string) (*Conn, error)
	// Adopt starts a new shim for a running VM.
	Adopt(ctx context.Context, o shim.Options) (*Conn, error)
}

// Conn is a connection to one pod's shim.
type Conn struct {
	sandboxv1.TTRPCSandboxService
	Task     taskv3.TTRPCTaskService
	Ext      shimv1.ExtensionClient
	SendFile func(ctx context.Context, name string, f *os.File) error
	// Done is closed with the connection.
	Done <-chan struct{}
	// Close closes the connection. The shim keeps running.
	Close func() error
	// Ended waits for the shim's exit.
	Ended   func(ctx context.Context) error
	PID     int
	Streams string // socket of its streams
}

// Processes are real shims.
type Processes struct{}

// Start implements Shims.
func (Processes) Start(ctx context.Context, o shim.Options) (*Conn, error) {
	return wrap(shim.Start(ctx, o))
}

// Connect implements Shims.
func (Processes) Connect(ctx context.Context, dir string) (*Conn, error) {
	return wrap(shim.Connect(ctx, dir))
}

// Adopt implements Shims.
func (Processes) Adopt(ctx context.Context, o shim.Options) (*Conn, error) {
	return wrap(shim.Adopt(ctx, o))
}

func wrap(c *shim.Client, err error) (*Conn, error) {
	if err != nil {
		return nil, err
	}
	return &Conn{
		TTRPCSandboxService: c.Sandbox, Task: c.Task, Ext: border{c.Extension},
		SendFile: c.SendFile, Done: c.Done(), Close: c.Close, Ended: c.Ended, PID: c.PID(),
		Streams: shim.StreamAddress(c.StateDir()),
	}, nil
}
