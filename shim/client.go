package shim

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/steps"
)

// ErrNotRunning is returned by Connect if no shim serves the directory. If the VM still runs, Adopt can start another
// shim.
var ErrNotRunning = errdefs.ErrUnavailable.WithMessage("shim is not running")

// Client is a connection to the shim of one pod. Its methods are safe for concurrent use. Errors of the three services
// carry a class of errdefs and its gRPC status code and at most 4 KiB of the shim's message.
type Client struct {
	// Sandbox and Task are containerd's services.
	Sandbox sandboxv1.TTRPCSandboxService
	Task    taskv3.TTRPCTaskService
	// Extension is Bulkhead's own service.
	Extension shimv1.ExtensionClient

	dir  string
	self procid.ID
	rpc  *ttrpc.Client
	done chan struct{}
	once sync.Once
}

// Connect connects to the shim of the state directory dir, or returns an error that matches ErrNotRunning.
func Connect(ctx context.Context, dir string) (*Client, error) {
	conn, err := dial(ctx, dir, layout.API)
	if err != nil {
		return nil, fmt.Errorf("connect to the shim in %s: %w", dir, err)
	}
	return newClient(dir, conn)
}

func dial(ctx context.Context, dir, name string) (*net.UnixConn, error) {
	conn, err := podsock.Dial(ctx, dir, name)
	if layout.IsDead(err) {
		err = fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	return conn, err
}

func newClient(dir string, conn *net.UnixConn) (*Client, error) {
	peer, err := podsock.Peer(conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("identify the shim in %s: %w", dir, err)
	}
	self, err := procid.Of(int(peer.Pid))
	if err != nil { // it accepted the connection and then ended
		conn.Close()
		return nil, fmt.Errorf("identify the shim in %s: %w: %w", dir, ErrNotRunning, err)
	}
	c := &Client{dir: dir, self: self, done: make(chan struct{})}
	c.rpc = ttrpc.NewClient(conn,
		ttrpc.WithUnaryClientInterceptor(c.intercept), ttrpc.WithOnClose(func() { c.once.Do(func() { close(c.done) }) }))
	c.Sandbox = sandboxv1.NewTTRPCSandboxClient(c.rpc)
	c.Task = taskv3.NewTTRPCTaskClient(c.rpc)
	c.Extension = shimv1.NewExtensionClient(c.rpc)
	return c, nil
}

// intercept bounds the shim's error messages and collects the steps of a traced call.
func (c *Client) intercept(
	ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, info *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker,
) error {
	return steps.Client(ctx, req, c.Extension, func() error { return shorten(ctx, req, resp, info, invoke) })
}

// maxMessage bounds the message of a status, in bytes, because errors are logged and stored.
const maxMessage = 4 << 10

// shorten bounds the shim's error message and adds the class. A shim is as hostile as its guest.
func shorten(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, _ *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker) error {
	err := invoke(ctx, req, resp)
	s := resp.GetStatus()
	if s != nil && len(s.Message) > maxMessage {
		s.Message = strings.ToValidUTF8(s.Message[:maxMessage], "?")
	}
	if err == nil {
		err = grpccode.Error(status.FromProto(s))
	}
	return err
}

// PID returns the shim's process id.
func (c *Client) PID() int { return c.self.PID }

// Ended waits for the end of the shim's process, regardless of the connection, or returns ctx's error.
func (c *Client) Ended(ctx context.Context) error { return c.self.Wait(ctx) }

// StateDir returns the directory that the shim serves.
func (c *Client) StateDir() string { return c.dir }

// Done returns a channel that is closed when the connection ends, by Close or by the shim's end.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close closes the connection; the shim and its pod keep running.
func (c *Client) Close() error { return c.rpc.Close() }

// SendFile sends the shim a copy of f under name, for the one call that names it: Task.Create ("file=NAME",
// "log:NAME"), CreateSandbox ("scratch"), ReopenLog, Publish. The shim closes a file that no call takes after a minute,
// or when nil is sent under its name. The caller keeps f.
func (c *Client) SendFile(ctx context.Context, name string, f *os.File) error {
	conn, err := dial(ctx, c.dir, layout.Files)
	if err != nil {
		return fmt.Errorf("send file %q to the shim: %w", name, err)
	}
	defer conn.Close()
	if err := fdpass.SendNamed(ctx, conn, name, f); err != nil {
		return fmt.Errorf("send file %q to the shim: %w", name, err)
	}
	return nil
}

// StreamAddress returns the path of the socket that accepts stream tokens. It never trusts a path that the shim sends.
func StreamAddress(dir string) string { return filepath.Join(dir, layout.Stream) }
