// Package client requests pods from the user's engine, for a door in a process of its own. It starts the engine if none
// is running. Afterwards the door talks to the pod's shim directly.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	run "github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/shim"
)

// Client requests pods for one door. It is safe for concurrent use. Each call opens its own connection, so a restarted
// engine does not matter. Errors are ctx's, an error of starting the engine, or an *Error.
type Client struct {
	door   string
	engine *run.Client
}

// New returns the client of a door, named by 1 to 32 of a-z, 0-9 and '-'. If no engine is running for the user of the
// roots, the client calls start (see run.StartProcess), unless it is nil.
func New(r dirs.Roots, door string, start run.Starter) *Client {
	return &Client{door: door, engine: run.New(r, start)}
}

// Pod is the state of a pod when the engine answered.
type Pod struct{ *enginev1.Pod }

// Start creates and starts the pod that r describes, or returns the ready pod with the same key. The client sets the
// door in r. The end of ctx ends the wait but not the start.
func (c *Client) Start(ctx context.Context, r *enginev1.StartRequest) (Pod, error) {
	r.Door = c.door
	var res *enginev1.StartResponse
	err := c.call(ctx, "start pod "+r.GetKey(), func(e enginev1.EngineClient) (err error) {
		res, err = e.Start(ctx, r)
		return err
	})
	return Pod{res.GetPod()}, err
}

// Adopt returns the door's pod with an id, or an error that matches errdefs.ErrNotFound.
func (c *Client) Adopt(ctx context.Context, id string) (Pod, error) {
	return c.adopt(ctx, &enginev1.AdoptRequest{Door: c.door, Id: id})
}

// AdoptKey is Adopt for the pod with a key.
func (c *Client) AdoptKey(ctx context.Context, key string) (Pod, error) {
	return c.adopt(ctx, &enginev1.AdoptRequest{Door: c.door, Key: key})
}

func (c *Client) adopt(ctx context.Context, r *enginev1.AdoptRequest) (Pod, error) {
	var res *enginev1.AdoptResponse
	err := c.call(ctx, "adopt pod "+r.GetId()+r.GetKey(), func(e enginev1.EngineClient) (err error) {
		res, err = e.Adopt(ctx, r)
		return err
	})
	return Pod{res.GetPod()}, err
}

// List returns the door's pods in any order.
func (c *Client) List(ctx context.Context) (pods []Pod, err error) {
	err = c.call(ctx, "list pods", func(e enginev1.EngineClient) error {
		pods = nil
		stream, err := e.List(ctx, &enginev1.ListRequest{Door: c.door})
		if err != nil {
			return err
		}
		for {
			res, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			pods = append(pods, Pod{res.GetPod()})
		}
	})
	return pods, err
}

// Stop stops a pod's VM and keeps its record. It succeeds if the pod is stopped or does not exist. The end of ctx ends
// the wait but not the stop.
func (c *Client) Stop(ctx context.Context, id string) error {
	return c.call(ctx, "stop pod "+id, func(e enginev1.EngineClient) error {
		_, err := e.Stop(ctx, &enginev1.StopRequest{Door: c.door, Id: id})
		return err
	})
}

// Remove removes a pod and its files. It succeeds if the pod does not exist. The end of ctx ends the wait but not the
// removal.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.call(ctx, "remove pod "+id, func(e enginev1.EngineClient) error {
		_, err := e.Remove(ctx, &enginev1.RemoveRequest{Door: c.door, Id: id})
		return err
	})
}

// tries is how often a call is tried if the engine ends instead of answering. Every call may be repeated: a start joins
// the one with the same key.
const tries = 3

// Do calls the engine on a connection of its own. It calls do again if the engine ends instead of answering.
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

// call is Do for one call of a pod.
func (c *Client) call(ctx context.Context, what string, do func(enginev1.EngineClient) error) error {
	err := c.Do(ctx, do)
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return &Error{Call: what, Code: s.Code(), Text: s.Message()}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Shim connects to the pod's shim. The caller closes the client. Shim follows no links in the pod's directory. The
// error matches shim.ErrNotRunning while a dead shim is being replaced.
func (p Pod) Shim(ctx context.Context) (*shim.Client, error) {
	return shim.Connect(ctx, p.GetDirectory())
}

// SendFile sends the pod's shim a copy of f under name, for the one call that will refer to it. See
// shim.Client.SendFile.
func (p Pod) SendFile(ctx context.Context, name string, f *os.File) error {
	c, err := p.Shim(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.SendFile(ctx, name, f)
}
