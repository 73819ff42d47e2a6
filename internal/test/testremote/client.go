// Package testremote makes the calls of a door in another process, for tests of the engine's side.
package testremote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc/status"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/door/remote/client"
	run "github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/shim"
)

// Client requests pods for one door. It is safe for concurrent use. Errors are ctx's, an error of starting the engine,
// or an *Error.
type Client struct {
	door   string
	engine *client.Client
}

// New returns the client of a door, see client.New.
func New(r dirs.Roots, door string, start run.Starter) *Client {
	return &Client{door: door, engine: client.New(r, start)}
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

// call is Do for one call of a pod.
func (c *Client) call(ctx context.Context, what string, do func(enginev1.EngineClient) error) error {
	err := c.engine.Do(ctx, do)
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

// UpdateNetwork replaces the interfaces of a pod with the network adopted. The client sets the door in r. The end of ctx
// ends the wait but not the update.
func (c *Client) UpdateNetwork(ctx context.Context, r *enginev1.UpdateNetworkRequest) error {
	r.Door = c.door
	return c.call(ctx, "update the network of pod "+r.GetId(), func(e enginev1.EngineClient) error {
		_, err := e.UpdateNetwork(ctx, r)
		return err
	})
}
