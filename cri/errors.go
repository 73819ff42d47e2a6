package cri

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Error is how the engine's methods fail: one line, a gRPC status code for
// whoever is on the other side of a socket, and the cause for errors.Is.
type Error struct {
	Code codes.Code
	// Text is the part of the message before the cause's.
	Text string
	Err  error
	// More is for who asks: the last lines of the guest's console.
	More string
}

// Error is one line.
func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return e.Text
	case e.Text == "":
		return message(e.Err)
	}
	return e.Text + ": " + message(e.Err)
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// GRPCStatus is what package status makes of the error.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Error()) }

// Detail is for a user who asks for more than one line.
func (e *Error) Detail() string {
	if d, ok := errors.AsType[interface {
		error
		Detail() string
	}](e.Err); ok && e.More == "" {
		return d.Detail()
	}
	return e.More
}

// message leaves out the "rpc error: code = …" that a status prints.
func message(err error) string {
	switch e := err.(type) { //nolint:errorlint // the outermost error alone decides how it prints
	case *Error:
		return e.Error()
	case interface{ GRPCStatus() *status.Status }:
		return e.GRPCStatus().Message()
	default:
		return err.Error()
	}
}

// codeOf lists the codes of causes; the first match counts.
var codeOf = []struct {
	err  error
	code codes.Code
}{
	{store.ErrReserved, codes.AlreadyExists},
	{store.ErrForeign, codes.NotFound},
	{sizing.ErrTooLarge, codes.ResourceExhausted},
	{network.ErrPublish, codes.FailedPrecondition},
	{network.ErrNotSupported, codes.Unimplemented},
	{oci.ErrInvalid, codes.InvalidArgument},
	{oci.ErrNotSupported, codes.Unimplemented},
	{image.ErrNotFound, codes.NotFound},
	{image.ErrAmbiguous, codes.InvalidArgument},
	{image.ErrInvalid, codes.InvalidArgument},
	{image.ErrUnauthorized, codes.Unauthenticated},
	{image.ErrPolicy, codes.PermissionDenied},
	{image.ErrInUse, codes.FailedPrecondition},
	{image.ErrUnavailable, codes.Unavailable},
	{image.ErrNoSpace, codes.ResourceExhausted},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// fail says what failed, with the code of the cause. Nil stays nil.
func fail(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code(err), Text: fmt.Sprintf(format, args...), Err: err}
}

// errorf is an error of the engine's own.
func errorf(c codes.Code, format string, args ...any) error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return errorf(codes.InvalidArgument, format, args...)
}

// unsupported is for what the CRI has and pods of this kind do not, or not yet.
func unsupported(format string, args ...any) error {
	return errorf(codes.Unimplemented, format, args...)
}

func code(err error) codes.Code {
	for _, c := range codeOf {
		if errors.Is(err, c.err) {
			return c.code
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

// notFound reports whether err says that what was named is not there.
func notFound(err error) bool { return err != nil && code(err) == codes.NotFound }
