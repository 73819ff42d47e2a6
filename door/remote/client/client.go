// Package client calls the user's engine, for a door in a process of its own. It starts the engine if none is running.
// The door gets a pod from the engine, and then talks to the pod's shim directly.
package client

import (
	"context"
	"errors"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	run "github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// Client calls the engine. It is safe for concurrent use. Each call opens its own connection, so a restarted engine does
// not matter.
type Client struct{ engine *run.Client }

// New returns a client. If no engine is running for the user of the roots, the client calls start (see
// run.StartProcess), unless it is nil.
func New(r dirs.Roots, start run.Starter) *Client { return &Client{run.New(r, start)} }

// tries is how often a call is tried if the engine ends instead of answering. Every call may be repeated: a start joins
// the one with the same key.
const tries = 3

// Do calls the engine on a connection of its own. It calls do again if the engine ends instead of answering. The error
// is of ctx, of starting the engine, or of the call.
func (c *Client) Do(ctx context.Context, do func(enginev1.EngineClient) error) (err error) {
	for range tries {
		conn, dialErr := c.engine.DialEngine(ctx)
		if dialErr != nil {
			return dialErr
		}
		rpc := ttrpc.NewClient(conn)
		err = do(enginev1.NewEngineClient(rpc))
		rpc.Close()
		if ctx.Err() != nil || !errors.Is(err, ttrpc.ErrClosed) && status.Code(err) != codes.Unavailable {
			break
		}
	}
	return err
}
