// Package errclass adds a class of github.com/containerd/errdefs to an error: errors.Is finds it, and the message does not
// repeat it. All layers use these classes. A package with a message of its own declares an error by WithMessage of a class.
//
// Five tables map errors to codes or classes, because each border has its own:
//   - grpccode has the codes of gRPC, for the CRI and for shims.
//   - api/agent/v1 has the names on the channel. Some classes are the agent's own, for the exit codes of commands.
//   - door/run/api has the names on the engine's socket. Clients distinguish fewer classes.
//   - engine/shares has the classes of the kernel's errors and of internal/place's, for paths that a client names.
//   - door/containerd/vms lists the codes that clients of containerd may get. They take others for the container's state.
package errclass

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
)

// ErrAmbiguous is the class of a name or id that matches several objects. It is a kind of errdefs.ErrInvalidArgument.
var ErrAmbiguous = errdefs.ErrInvalidArgument.WithMessage("ambiguous")

// Of returns the class of err: errdefs.ErrUnknown, another class of errdefs, context.DeadlineExceeded or
// context.Canceled. If err has several, the outermost one counts, and the first one of a join.
func Of(err error) error {
	if class := errdefs.Resolve(err); class != errdefs.ErrUnknown || err == nil { //nolint:errorlint // Resolve returns a class itself
		return class
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return errdefs.ErrNotImplemented
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	}
	return errdefs.ErrUnknown
}

// New returns an error with the text of fmt.Errorf and a class that errors.Is finds.
func New(class error, format string, args ...any) error {
	return With(class, fmt.Errorf(format, args...))
}

// With returns err with a class that errors.Is finds. Its message is err's.
func With(class, err error) error { return fmt.Errorf("%w%w", silent{class}, err) }

// silent is a class that adds nothing to the message.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// Names are classes with their names for messages over a socket.
type Names []struct {
	Name  string
	Class error
}

// Of returns the name of err's outermost class, and "" if it has none. A class that wraps another one stands before it. Of
// does not use errdefs.Resolve, because the agent is smaller without it.
func (n Names) Of(err error) string {
	is, _ := err.(interface{ Is(error) bool })
	for _, one := range n {
		if err == one.Class || is != nil && is.Is(one.Class) { //nolint:errorlint // one error of the tree at a time
			return one.Name
		}
	}
	switch e := err.(type) { //nolint:errorlint // the same
	case interface{ Unwrap() error }:
		return n.Of(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, cause := range e.Unwrap() {
			if name := n.Of(cause); name != "" {
				return name
			}
		}
	}
	return ""
}

// Named returns the first class with that name, and nil for an unknown one.
func (n Names) Named(name string) error {
	for _, one := range n {
		if one.Name == name {
			return one.Class
		}
	}
	return nil
}
