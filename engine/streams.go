package engine

import (
	"context"
	"errors"
	"net"

	"github.com/containerd/errdefs"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// Stream identifies a byte stream of a pod or a container.
type Stream = link.Stream

// PortForward returns the stream of one connection to a port of the pod. It carries raw bytes with half close.
func (e *Engine) PortForward(ctx context.Context, id string, port int) (Stream, error) {
	p, shim, err := e.live(id)
	if err != nil {
		return Stream{}, err
	}
	if port < 1 || port > 65535 {
		return Stream{}, failure.Invalid("port-forward to pod %s: port %d is not from 1 to 65535", shortid.Of(p.id), port)
	}
	s, err := shim.Open(ctx, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_PORT_FORWARD, Port: uint32(port)})
	return s, failure.Wrap(err, "port-forward to pod %s", shortid.Of(p.id))
}

// Console returns the stream of the guest's console from its start; it follows the output. For a stopped pod, read
// the file in Facts.
func (e *Engine) Console(ctx context.Context, id string) (Stream, error) {
	p, c, err := e.live(id)
	if err != nil {
		return Stream{}, err
	}
	s, err := c.Open(ctx, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_CONSOLE})
	return s, failure.Wrap(err, "console of pod %s", shortid.Of(p.id))
}

// CopyRequest names a path in a container. The container may have ended, but its pod's VM must run.
type CopyRequest struct {
	ContainerID string
	Path        string
	// In copies a tar stream into the container; otherwise one is sent.
	In bool
	// Into means that Path is a directory for any content of the stream. Otherwise the stream is one tree, which
	// becomes Path unless that is a directory.
	Into bool
}

// Copy returns the stream of a copy, framed like a process's. The tar stream is its stdin or stdout, and its stderr
// lists skipped files. It ends with exit code 0 or with an error.
func (e *Engine) Copy(ctx context.Context, r CopyRequest) (Stream, error) {
	c, err := e.findContainer(r.ContainerID)
	if err != nil {
		return Stream{}, err
	}
	shim, err := c.pod.shim()
	if err != nil {
		return Stream{}, err
	}
	kind := shimv1.OpenRequest_COPY_OUT
	if r.In {
		kind = shimv1.OpenRequest_COPY_IN
	}
	s, err := shim.Open(ctx, &shimv1.OpenRequest{Kind: kind, ContainerId: c.ID, Path: r.Path, Into: r.Into})
	return s, failure.Wrap(err, "copy of container %s", c.Name)
}

// live returns a pod and its shim.
func (e *Engine) live(id string) (*pod, *link.Conn, error) {
	p, err := e.find(id)
	if err != nil {
		return nil, nil, err
	}
	shim, err := p.shim()
	return p, shim, err
}

// DialPort connects to a TCP port of a running pod: on its loopback, or on its address if the loopback has no
// listener. The connection supports half close (CloseWrite); ctx bounds only the connecting. The error matches
// syscall.ECONNREFUSED if the port has no listener, and stream.ErrRefused if the connection failed otherwise. With
// the codes Unavailable, FailedPrecondition and NotFound the pod could not be asked.
func (e *Engine) DialPort(ctx context.Context, id string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, failure.Invalid("connect to port %d of pod %s: not from 1 to 65535", port, shortid.Of(id))
	}
	p, err := e.find(id)
	if err != nil {
		return nil, err
	}
	conn, err := p.dialPort(ctx, uint32(port))
	if lost(err) {
		conn, err = p.dialPort(ctx, uint32(port)) // by the next shim
	}
	return conn, failure.Wrap(err, "connect to port %d of pod %s", port, shortid.Of(p.id))
}

func (p *pod) dialPort(ctx context.Context, port uint32) (net.Conn, error) {
	shim, err := p.live(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		// Not the code of err: it would mean the pod, which was not asked.
		return nil, failure.New(errdefs.ErrUnavailable, "%s", failure.Message(err))
	}
	if err != nil {
		return nil, err
	}
	callCtx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	res, err := shim.Ext.Open(callCtx, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_PORT_FORWARD, Port: port})
	if err != nil {
		return nil, err
	}
	conn, err := stream.Dial(callCtx, shim.Streams, res.GetToken())
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, stream.ErrRefused), callCtx.Err() != nil:
		return nil, err
	}
	// Not the cause: a dead shim also refuses connections.
	return nil, failure.New(errdefs.ErrUnavailable, "%s", failure.Message(err))
}
