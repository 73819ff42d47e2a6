package testremote

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

// Error is the engine's answer to a failed call. It has the class of errdefs of its code.
type Error struct {
	Call string // the call and the pod
	Code codes.Code
	Text string // the engine's message
}

// Error returns one line.
func (e *Error) Error() string { return e.Call + ": " + e.Text }

// Unwrap returns the class of the code.
func (e *Error) Unwrap() error { return grpccode.Class(e.Code) }

// GRPCStatus lets status.Code find the code.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Error()) }
