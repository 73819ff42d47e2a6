package agentv1

import (
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// maxMessage bounds an error's message, in bytes.
const maxMessage = 1024

// The errors of an agent have the classes of errdefs, and these. Forward also returns syscall.ECONNREFUSED for a port
// without a listener.
var (
	ErrBusy      = errdefs.ErrConflict.WithMessage("busy")
	ErrNoCommand = errdefs.ErrInvalidArgument.WithMessage("executable not found")     // exit code 127
	ErrNotExec   = errdefs.ErrInvalidArgument.WithMessage("executable cannot be run") // exit code 126
)

// Error is an error that crosses the channel.
type Error struct {
	Class   string `json:"class,omitempty"`
	Message string `json:"message"`
}

var classes = errclass.Names{
	{"not-found", errdefs.ErrNotFound},
	{"exists", errdefs.ErrAlreadyExists},
	{"busy", ErrBusy},
	{"no-command", ErrNoCommand},
	{"not-exec", ErrNotExec},
	{"invalid", errdefs.ErrInvalidArgument},
	{"unsupported", errdefs.ErrNotImplemented},
	{"refused", syscall.ECONNREFUSED},
}

// ToError converts err for the channel. Nil stays nil.
func ToError(err error) *Error {
	if err == nil {
		return nil
	}
	e := (&Error{Class: classes.Of(err), Message: err.Error()}).bounded()
	return e
}

// Error returns the agent's one-line message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the class, or nil without a class or for one that this host does not know.
func (e *Error) Unwrap() error { return classes.Named(e.Class) }

// bounded limits the message to one line of printable text, at most maxMessage bytes, for logs and terminals.
func (e *Error) bounded() *Error {
	e.Message = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0):
			return -1
		}
		return r
	}, e.Message[:min(len(e.Message), maxMessage)])
	return e
}
