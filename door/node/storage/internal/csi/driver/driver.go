// Package driver calls the node service of one CSI driver. Every call has a deadline and a limit for its answer. Its
// error names driver and call, and contains nothing of the request.
package driver

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/rpc"
	"github.com/bulkhead-project/bulkhead/internal/printable"
)

const (
	// Timeout limits a call, as in a kubelet.
	Timeout = 2 * time.Minute
	// maxMessage limits an answer, in bytes.
	maxMessage = 1 << 20
	// maxWords limits the message of an error, in bytes.
	maxWords = 2048
)

// Options configure a Client. Name and Endpoint are required.
type Options struct {
	// Name is the name of the driver. Endpoint is the path of its socket.
	Name, Endpoint string
	// Timeout limits a call; 0 means the constant Timeout.
	Timeout time.Duration
}

// Client is the client of a driver's node service. It is safe for concurrent use.
type Client struct {
	csi.NodeClient
	conn *grpc.ClientConn
}

// Error is the error of a failed call. status.Code returns its code.
type Error struct {
	Driver, Call string
	Code         codes.Code
	Words        string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("CSI driver %s: %s: %s: %s", e.Driver, e.Call, e.Code, e.Words)
}

// New returns a Client. It does not call the driver yet. The caller calls Close.
func New(o Options) (*Client, error) {
	within := cmp.Or(o.Timeout, Timeout)
	conn, err := rpc.Connect(o.Endpoint, maxMessage, grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			if err := call(ctx, method, in, out, conn, opts...); err != nil {
				return failed(o.Name, method, err)
			}
			return nil
		}))
	if err != nil {
		return nil, fmt.Errorf("CSI driver %s: %w", o.Name, err)
	}
	return &Client{NodeClient: csi.NewNodeClient(conn), conn: conn}, nil
}

// Close closes the connection and cancels the calls that are running.
func (c *Client) Close() error { return c.conn.Close() }

func failed(name, method string, err error) error {
	s := status.Convert(err)
	words := s.Message()
	call := method[1+strings.LastIndexByte(method, '/'):]
	return &Error{Driver: name, Call: call, Code: s.Code(), Words: printable.Text(words[:min(len(words), maxWords)])}
}
