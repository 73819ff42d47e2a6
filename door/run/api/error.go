package api

import (
	"errors"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Error is an error that crosses the socket. Message is one line. Detail has what helps to find the cause: the last
// lines of a console, or the stderr of a process.
type Error struct {
	Class   string `json:"class,omitempty"`
	Message string `json:"message"`
	Detail  string `json:"detail,omitempty"`
	// ExitCode is 127 or 126 for a command that could not be run, and 0 for all other errors.
	ExitCode int `json:"exitCode,omitempty"`
}

// classes are the names of the classes of errors. errors.Is matches a class on both sides of the socket, but only the first
// one of a name on the client's.
var classes = errclass.Names{
	{"not-found", errdefs.ErrNotFound},
	{"ambiguous", errclass.ErrAmbiguous},
	{"invalid", errdefs.ErrInvalidArgument},
	{"conflict", errdefs.ErrConflict},
	{"conflict", errdefs.ErrAlreadyExists},
	{"conflict", errdefs.ErrFailedPrecondition},
	{"denied", errdefs.ErrUnauthenticated},
}

// ToError converts err to an Error that can cross the socket.
func ToError(err error) *Error {
	if already := (*Error)(nil); errors.As(err, &already) {
		return already
	}
	e := &Error{Class: classes.Of(err), Message: err.Error()}
	if d, ok := errors.AsType[interface {
		error
		Detail() string
	}](err); ok {
		e.Detail = d.Detail()
	}
	if exit, ok := errors.AsType[interface {
		error
		ExitStatus() int
	}](err); ok {
		e.ExitCode = exit.ExitStatus()
	}
	return e
}

// Error returns the one-line message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the class, or nil if there is none.
func (e *Error) Unwrap() error { return classes.Named(e.Class) }
