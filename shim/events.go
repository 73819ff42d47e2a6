package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/anypb"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// Events calls handle for each event, in order, until ctx or the shim ends;
// the first has the topic "/bulkhead/ready", and none is missed after it. It
// uses a connection of its own, because a handler that is slow would hold up
// every answer on a shared one. A handler that is too slow for the shim's queue
// ends the stream with the status ResourceExhausted.
func (c *Client) Events(ctx context.Context, handle func(*shimv1.Event)) error {
	conn, err := dial(ctx, c.dir, layout.API)
	if err != nil {
		return fmt.Errorf("receive events: %w", err)
	}
	rpc := ttrpc.NewClient(conn)
	defer rpc.Close()
	in, err := shimv1.NewExtensionClient(rpc).Events(ctx, &shimv1.EventsRequest{})
	if err != nil {
		return fmt.Errorf("receive events: %w", err)
	}
	for {
		event, err := in.Recv()
		if err != nil {
			return fmt.Errorf("receive events: %w", err)
		}
		handle(event)
	}
}

// Create gives the sandbox its configuration; a scratch disk was sent before
// (SendFile, "scratch").
func (c *Client) Create(ctx context.Context, config sandbox.Config) error {
	b, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("create sandbox %s: %w", config.ID, err)
	}
	_, err = c.Sandbox.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		SandboxID: config.ID, Options: &anypb.Any{TypeUrl: layout.ConfigType, Value: b},
	})
	return err
}

func isPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
