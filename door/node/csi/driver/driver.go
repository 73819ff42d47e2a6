// Package driver speaks to the node service of one CSI driver. Every call has a deadline and bounded answers, and its
// error names driver and call and holds no request.
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

	"github.com/bulkhead-project/bulkhead/door/node/csi/rpc"
	"github.com/bulkhead-project/bulkhead/internal/printable"
)

const (
	// Timeout bounds a call, as a kubelet's does.
	Timeout = 2 * time.Minute
	// maxMessage bounds an answer, in bytes.
	maxMessage = 1 << 20
	// maxWords is how much of the words of an error is told on, in bytes.
	maxWords = 2048
)

// Options are a Client's. Name and Endpoint are required.
type Options struct {
	// Name is the driver's, Endpoint the path of its socket.
	Name, Endpoint string
	// Timeout is that of a call; 0 is Timeout.
	Timeout time.Duration
}

// Client is a driver's node service. Its methods may be called at once.
type Client struct {
	csi.NodeClient
	conn *grpc.ClientConn
}

// Error is a call that failed. status.Code finds its code.
type Error struct {
	Driver, Call string
	Code         codes.Code
	Words        string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("CSI driver %s: %s: %s: %s", e.Driver, e.Call, e.Code, e.Words)
}

// New makes a Client. Nothing is called yet. The caller calls Close.
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

// Close ends the connection, and with it the calls under way.
func (c *Client) Close() error { return c.conn.Close() }

func failed(name, method string, err error) error {
	s := status.Convert(err)
	words := s.Message()
	call := method[1+strings.LastIndexByte(method, '/'):]
	return &Error{Driver: name, Call: call, Code: s.Code(), Words: printable.Text(words[:min(len(words), maxWords)])}
}
