// Package grpccode maps the classes of errors to gRPC status codes and back.
package grpccode

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// table has the class of each code first, and then further classes with that code.
var table = []struct {
	class error
	code  codes.Code
}{
	{errdefs.ErrInvalidArgument, codes.InvalidArgument},
	{errdefs.ErrNotFound, codes.NotFound},
	{errdefs.ErrAlreadyExists, codes.AlreadyExists},
	{errdefs.ErrPermissionDenied, codes.PermissionDenied},
	{errdefs.ErrResourceExhausted, codes.ResourceExhausted},
	{errdefs.ErrFailedPrecondition, codes.FailedPrecondition},
	{errdefs.ErrConflict, codes.FailedPrecondition},
	{errdefs.ErrAborted, codes.Aborted},
	{errdefs.ErrOutOfRange, codes.OutOfRange},
	{errdefs.ErrNotImplemented, codes.Unimplemented},
	{errdefs.ErrInternal, codes.Internal},
	{errdefs.ErrUnavailable, codes.Unavailable},
	{errdefs.ErrDataLoss, codes.DataLoss},
	{errdefs.ErrUnauthenticated, codes.Unauthenticated},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// Of returns the code of err: OK for nil, the code of its class, or the code of a status without a class.
func Of(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	class := errclass.Of(err)
	if errors.Is(err, errdefs.ErrUnknown) && class == errdefs.ErrUnknown { //nolint:errorlint // the outermost class hides others
		return codes.Unknown
	}
	for _, one := range table {
		if class == one.class { //nolint:errorlint // it is a class itself
			return one.code
		}
	}
	if s, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		return s.GRPCStatus().Code()
	}
	return codes.Unknown
}

// Class returns the class of a code, and errdefs.ErrUnknown for other codes.
func Class(code codes.Code) error {
	for _, one := range table {
		if code == one.code {
			return one.class
		}
	}
	return errdefs.ErrUnknown
}

// Status converts err to a status with the code of Of, unless it is one. Nil stays nil.
func Status(err error) error {
	if s, ok := status.FromError(err); ok && s.Code() == Of(err) {
		return err
	}
	return status.Error(Of(err), err.Error())
}

// Error returns the error of a failed call: the status, with the class of its code. It returns nil for the code OK.
func Error(s *status.Status) error {
	if s.Code() == codes.OK {
		return nil
	}
	return &classified{s.Err(), Class(s.Code()), s}
}

type classified struct {
	error
	class  error
	status *status.Status
}

func (c *classified) GRPCStatus() *status.Status { return c.status }
func (c *classified) Unwrap() error              { return c.class }
