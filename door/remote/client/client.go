// Package client asks the user's engine for pod machines, for a door in a process of its
// own: it starts the engine if none runs. What a pod does is then between the door and
// the pod's shim.
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

// Client asks for the pods of one door. Its methods may be called at once. Each makes a
// connection of its own, so that an engine that has ended since is no concern of the
// door's. Their errors are ctx's, those of starting an engine, or an *Error.
type Client struct {
	door   string
	engine *run.Client
}

// New is the client of a door: 1 to 32 of a-z, 0-9 and '-'. Where no engine serves the
// roots' user, start starts one (run.StartProcess); nil starts none.
func New(r dirs.Roots, door string, start run.Starter) *Client {
	return &Client{door: door, engine: run.New(r, start)}
}

// Pod is a pod machine as it was when the engine answered.
type Pod struct{ *enginev1.Pod }

// Start makes and starts the pod that r asks for, or returns the ready one that has its
// key already. The client names the door in r. The end of ctx ends the wait and not the
// start.
func (c *Client) Start(ctx context.Context, r *enginev1.StartRequest) (Pod, error) {
	r.Door = c.door
	var res *enginev1.StartResponse
	err := c.call(ctx, "start pod "+r.GetKey(), func(e enginev1.EngineClient) (err error) {
		res, err = e.Start(ctx, r)
		return err
	})
	return Pod{res.GetPod()}, err
}

// Adopt returns the door's pod of an id, or an error that matches ErrNotFound.
func (c *Client) Adopt(ctx context.Context, id string) (Pod, error) {
	return c.adopt(ctx, &enginev1.AdoptRequest{Door: c.door, Id: id})
}

// AdoptKey is Adopt for the pod that has a key.
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

// List returns the door's pods, in no order.
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

// Stop ends a pod's VM and keeps its record. It succeeds for a pod that is stopped or
// not there. The end of ctx ends the wait and not the stop.
func (c *Client) Stop(ctx context.Context, id string) error {
	return c.call(ctx, "stop pod "+id, func(e enginev1.EngineClient) error {
		_, err := e.Stop(ctx, &enginev1.StopRequest{Door: c.door, Id: id})
		return err
	})
}

// Remove removes a pod with all that it has on disk. It succeeds for one that is not
// there. The end of ctx ends the wait and not the removal.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.call(ctx, "remove pod "+id, func(e enginev1.EngineClient) error {
		_, err := e.Remove(ctx, &enginev1.RemoveRequest{Door: c.door, Id: id})
		return err
	})
}

// tries is how often a call is made to engines that end instead of answering. Each call
// may be made again: a start joins the one with its key.
const tries = 3

// call makes a call of the engine, on a connection of its own.
func (c *Client) call(ctx context.Context, what string, do func(enginev1.EngineClient) error) (err error) {
	for range tries {
		conn, dialErr := c.engine.DialEngine(ctx)
		if dialErr != nil {
			return fmt.Errorf("%s: %w", what, dialErr)
		}
		rpc := ttrpc.NewClient(conn)
		err = do(enginev1.NewEngineClient(rpc))
		rpc.Close()
		if ctx.Err() != nil || !errors.Is(err, ttrpc.ErrClosed) && status.Code(err) != codes.Unavailable {
			break
		}
	}
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return &Error{Call: what, Code: s.Code(), Text: s.Message()}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Shim connects to the pod's shim, which the caller closes. No link in the pod's
// directory is followed. While a shim that died is being replaced the error matches
// shim.ErrNotRunning.
func (p Pod) Shim(ctx context.Context) (*shim.Client, error) {
	return shim.Connect(ctx, p.GetDirectory())
}

// SendFile gives the pod's shim a copy of f under name, for the one call that will name
// it: see shim.Client.SendFile.
func (p Pod) SendFile(ctx context.Context, name string, f *os.File) error {
	c, err := p.Shim(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.SendFile(ctx, name, f)
}
