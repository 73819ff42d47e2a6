// Package failure defines the errors of an engine and its doors: one line of text, a gRPC status code for clients,
// and the cause for errors.Is.
package failure

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/named"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/hostpath"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Error is the error type of the engine's methods.
type Error struct {
	Code codes.Code
	// Text is the part of the message before the cause's message.
	Text string
	Err  error
	// More is optional detail: the last lines of the guest's console.
	More string
}

// Error returns one line.
func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return e.Text
	case e.Text == "":
		return Message(e.Err)
	}
	return e.Text + ": " + Message(e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// GRPCStatus returns the error as a gRPC status, for package status.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Error()) }

// Detail returns more than one line, for users who ask for it.
func (e *Error) Detail() string {
	if d, ok := errors.AsType[interface {
		error
		Detail() string
	}](e.Err); ok && e.More == "" {
		return d.Detail()
	}
	return e.More
}

// Message returns the text of err without the "rpc error: code = …" that a status prints.
func Message(err error) string {
	switch e := err.(type) { //nolint:errorlint // the outermost error alone decides how it prints
	case *Error:
		return e.Error()
	case interface{ GRPCStatus() *status.Status }:
		return e.GRPCStatus().Message()
	default:
		return err.Error()
	}
}

// codeOf maps causes to codes; the first match counts.
var codeOf = []struct {
	err  error
	code codes.Code
}{
	{store.ErrReserved, codes.AlreadyExists},
	{store.ErrForeign, codes.NotFound},
	{sizing.ErrTooLarge, codes.ResourceExhausted},
	{network.ErrNotSupported, codes.Unimplemented},
	{network.ErrPublish, codes.FailedPrecondition},
	{hostpath.ErrOutside, codes.InvalidArgument},
	{containerv1.ErrInvalid, codes.InvalidArgument},
	{errors.ErrUnsupported, codes.Unimplemented},
	{oci.ErrInvalid, codes.InvalidArgument},
	{oci.ErrNotSupported, codes.Unimplemented},
	{named.ErrNotFound, codes.NotFound},
	{named.ErrExists, codes.AlreadyExists},
	{named.ErrInUse, codes.FailedPrecondition},
	{named.ErrName, codes.InvalidArgument},
	{named.ErrSize, codes.InvalidArgument},
	{named.ErrInvalid, codes.InvalidArgument},
	{image.ErrNotFound, codes.NotFound},
	{image.ErrAmbiguous, codes.InvalidArgument},
	{image.ErrInvalid, codes.InvalidArgument},
	{image.ErrUnauthorized, codes.Unauthenticated},
	{image.ErrPolicy, codes.PermissionDenied},
	{image.ErrInUse, codes.FailedPrecondition},
	{image.ErrUnavailable, codes.Unavailable},
	{image.ErrNoSpace, codes.ResourceExhausted},
	{image.ErrMemory, codes.ResourceExhausted},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// Wrap adds the failed operation to an error and keeps the code of the cause. It returns nil for nil.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Code: Code(err), Text: fmt.Sprintf(format, args...), Err: err}
}

// New returns an error without a cause.
func New(c codes.Code, format string, args ...any) error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...)}
}

// Invalid returns an error for an invalid request.
func Invalid(format string, args ...any) error {
	return New(codes.InvalidArgument, format, args...)
}

// Unsupported returns an error for a feature that clients may ask for, but that pods in VMs lack.
func Unsupported(format string, args ...any) error {
	return New(codes.Unimplemented, format, args...)
}

// Code returns the gRPC code of err: the code of the first cause with one.
func Code(err error) codes.Code {
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

// NotFound reports whether err means that the object does not exist.
func NotFound(err error) bool { return err != nil && Code(err) == codes.NotFound }
