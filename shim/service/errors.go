package service

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/events"
	"github.com/bulkhead-project/bulkhead/shim/fdpass"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// codeOf maps errors to status codes that containerd's errdefs convert to its own errors. The first match counts.
var codeOf = []struct {
	err  error
	code codes.Code
}{
	{agentv1.ErrNoCommand, codes.InvalidArgument}, // the process has ended, with 127
	{agentv1.ErrNotExec, codes.InvalidArgument},   // the process has ended, with 126
	{sandbox.ErrVMGone, codes.Unavailable},
	{sandbox.ErrVMStopped, codes.Unavailable},
	{hypervisor.ErrGone, codes.Unavailable},
	{sandbox.ErrNotFound, codes.NotFound},
	{agentv1.ErrNotFound, codes.NotFound},
	{fdpass.ErrNoFile, codes.NotFound},
	{sandbox.ErrExists, codes.AlreadyExists},
	{agentv1.ErrExists, codes.AlreadyExists},
	{sandbox.ErrState, codes.FailedPrecondition},
	{agentv1.ErrBusy, codes.FailedPrecondition},
	{sandbox.ErrInvalid, codes.InvalidArgument},
	{agentv1.ErrInvalid, codes.InvalidArgument},
	{containerv1.ErrInvalid, codes.InvalidArgument},
	{hypervisor.ErrInvalid, codes.InvalidArgument},
	{errors.ErrUnsupported, codes.Unimplemented},
	{agentv1.ErrUnsupported, codes.Unimplemented},
	{sandbox.ErrNoSlot, codes.ResourceExhausted},
	{sandbox.ErrTooMany, codes.ResourceExhausted},
	{stream.ErrBusy, codes.ResourceExhausted},
	{events.ErrTooMany, codes.ResourceExhausted},
	{events.ErrSlow, codes.ResourceExhausted},
	{events.ErrClosed, codes.Unavailable},
	{net.ErrClosed, codes.Unavailable},
	{sandbox.ErrTimeout, codes.DeadlineExceeded},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// toStatus converts err to a status with the code that clients match. Nil stays nil.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, c := range codeOf {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	return status.Error(codes.Unknown, err.Error())
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
