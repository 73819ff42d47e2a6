// Package failure defines the errors of an engine and its doors: one line of text, a class of errdefs with its gRPC
// status code, the cause for errors.Is, and detail.
package failure

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

// Error is the error type of the engine's methods.
type Error struct {
	// Class is the class of the error, of errdefs. If it is nil, the cause has the class.
	Class error
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

// Unwrap returns the class and the cause.
func (e *Error) Unwrap() []error { return []error{e.Class, e.Err} }

// GRPCStatus returns the error as a gRPC status, for package status.
func (e *Error) GRPCStatus() *status.Status {
	code := grpccode.Of(errors.Join(e.Class, e.Err))
	if code == codes.OK { // neither class nor cause
		code = codes.Unknown
	}
	return status.New(code, e.Error())
}

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

// Wrap adds the failed operation to an error and keeps the class of the cause. It returns nil for nil.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Text: fmt.Sprintf(format, args...), Err: err}
}

// New returns an error of a class without a cause.
func New(class error, format string, args ...any) error {
	return &Error{Class: class, Text: fmt.Sprintf(format, args...)}
}

// Invalid returns an error for an invalid request.
func Invalid(format string, args ...any) error {
	return New(errdefs.ErrInvalidArgument, format, args...)
}

// Unsupported returns an error for a feature that clients may ask for, but that pods in VMs lack.
func Unsupported(format string, args ...any) error {
	return New(errdefs.ErrNotImplemented, format, args...)
}

// NotFound reports whether err means that the object does not exist.
func NotFound(err error) bool { return grpccode.Of(err) == codes.NotFound }
