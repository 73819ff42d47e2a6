package api

import (
	"errors"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// The classes of the engine's errors, matched with errors.Is on both
// sides of the socket.
var (
	ErrNotFound  = errors.New("not found")
	ErrAmbiguous = errors.New("ambiguous")
	ErrInvalid   = errors.New("invalid")
	ErrConflict  = errors.New("conflict")
	ErrDenied    = errors.New("denied")
)

// Error crosses the socket. Message is one line; Detail is what only a closer
// look needs: a console's last lines, a process's stderr.
type Error struct {
	Class   string `json:"class,omitempty"`
	Message string `json:"message"`
	Detail  string `json:"detail,omitempty"`
	// ExitCode is that of a command that could not be run, 127 or 126; 0 for
	// every other error.
	ExitCode int `json:"exitCode,omitempty"`
}

var classes = errclass.Names{
	{"not-found", ErrNotFound},
	{"ambiguous", ErrAmbiguous},
	{"invalid", ErrInvalid},
	{"conflict", ErrConflict},
	{"denied", ErrDenied},
}

// ToError makes err fit to cross the socket.
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

// Error is the one-line message.
func (e *Error) Error() string { return e.Message }

// Unwrap is the class, or nil for none.
func (e *Error) Unwrap() error { return classes.Named(e.Class) }
