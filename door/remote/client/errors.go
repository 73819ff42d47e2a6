package client

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors that an *Error may match.
var (
	ErrNotFound    = errors.New("no such pod")
	ErrExists      = errors.New("a stopped pod has the key")
	ErrInvalid     = errors.New("invalid request")
	ErrUnsupported = errors.New("not supported for pods in virtual machines")
	ErrTooLarge    = errors.New("the host has too few resources")
	ErrUnavailable = errors.New("the engine is stopping")
)

var classOf = map[codes.Code]error{
	codes.NotFound:          ErrNotFound,
	codes.AlreadyExists:     ErrExists,
	codes.InvalidArgument:   ErrInvalid,
	codes.Unimplemented:     ErrUnsupported,
	codes.ResourceExhausted: ErrTooLarge,
	codes.Unavailable:       ErrUnavailable,
	// The engine may notice the end of the caller's context before the caller does.
	codes.DeadlineExceeded: context.DeadlineExceeded,
	codes.Canceled:         context.Canceled,
}

// Error is the engine's answer to a failed call.
type Error struct {
	Call string // the call and the pod
	Code codes.Code
	Text string // the engine's message
}

// Error returns one line.
func (e *Error) Error() string { return e.Call + ": " + e.Text }

// Is reports whether target is the error class of the code.
func (e *Error) Is(target error) bool {
	class, ok := classOf[e.Code]
	return ok && class == target
}

// GRPCStatus lets status.Code find the code.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Error()) }
