package cri

import (
	"context"
	"os"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/shim"
)

// shims starts and finds shims; tests have another one.
type shims interface {
	Start(ctx context.Context, o shim.Options) (*conn, error)
	// Connect returns an error that matches shim.ErrNotRunning if nobody
	// serves dir.
	Connect(ctx context.Context, dir string) (*conn, error)
	Adopt(ctx context.Context, o shim.Options) (*conn, error)
}

// conn is a connection to one pod's shim.
type conn struct {
	sandboxv1.TTRPCSandboxService
	task     taskv3.TTRPCTaskService
	ext      shimv1.ExtensionClient
	sendFile func(ctx context.Context, name string, f *os.File) error
	done     <-chan struct{}
	close    func() error
	ended    func(ctx context.Context) error // waits for the shim's end
	pid      int
	streams  string // path of the socket of its streams
}

// processes are real shims.
type processes struct{}

func (processes) Start(ctx context.Context, o shim.Options) (*conn, error) {
	return wrap(shim.Start(ctx, o))
}

func (processes) Connect(ctx context.Context, dir string) (*conn, error) {
	return wrap(shim.Connect(ctx, dir))
}

func (processes) Adopt(ctx context.Context, o shim.Options) (*conn, error) {
	return wrap(shim.Adopt(ctx, o))
}

func wrap(c *shim.Client, err error) (*conn, error) {
	if err != nil {
		return nil, err
	}
	return &conn{
		TTRPCSandboxService: c.Sandbox, task: c.Task, ext: border{c.Extension},
		sendFile: c.SendFile, done: c.Done(), close: c.Close, ended: c.Ended, pid: c.PID(),
		streams: shim.StreamAddress(c.StateDir()),
	}, nil
}

// callTimeout bounds a call to a shim that does not wait for a process or for
// a machine's start: the shim bounds its calls to the agent by less.
const callTimeout = 45 * time.Second
