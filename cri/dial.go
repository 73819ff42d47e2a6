package cri

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/codes"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// DialPort connects to a TCP port of a running pod: on its loopback, or on its
// address where nothing listens there. The connection can be closed by halves
// (CloseWrite); ctx bounds the connecting only. Before a byte has been sent,
// errors are told apart: one that matches syscall.ECONNREFUSED says that nothing
// listens, one that matches stream.ErrRefused that the connection was tried in
// vain; with the codes Unavailable, FailedPrecondition and NotFound nobody in the
// pod could be asked.
func (s *Service) DialPort(ctx context.Context, id string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, invalid("connect to port %d of pod %s: not from 1 to 65535", port, short(id))
	}
	p, err := s.find(id)
	if err != nil {
		return nil, err
	}
	conn, err := p.dialPort(ctx, uint32(port))
	if lost(err) {
		conn, err = p.dialPort(ctx, uint32(port)) // by the next shim
	}
	return conn, fail(err, "connect to port %d of pod %s", port, short(p.id))
}

func (p *pod) dialPort(ctx context.Context, port uint32) (net.Conn, error) {
	shim, err := p.live(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		// Not its code: that would be the pod's, which was not asked.
		return nil, errorf(codes.Unavailable, "%s", message(err))
	}
	if err != nil {
		return nil, err
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := shim.ext.Open(callCtx, &shimv1.OpenRequest{Kind: shimv1.OpenRequest_PORT_FORWARD, Port: port})
	if err != nil {
		return nil, err
	}
	conn, err := stream.Dial(callCtx, shim.streams, res.GetToken())
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, stream.ErrRefused), callCtx.Err() != nil:
		return nil, err
	}
	// Not its cause: a shim that is gone refuses connections too.
	return nil, errorf(codes.Unavailable, "%s", message(err))
}
