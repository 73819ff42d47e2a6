// Package undo is a rollback stack: each step of an operation registers its undo before the step is done.
package undo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// budget bounds a whole rollback, so that it cannot hang its caller.
const budget = 30 * time.Second

// Stack holds the undos of one operation, last in, first out. The zero value
// is ready. It is not safe for concurrent use.
type Stack struct{ steps []step }

type step struct {
	name string
	undo func(context.Context) error
}

// Push registers the undo of the step called name.
func (s *Stack) Push(name string, undo func(context.Context) error) {
	s.steps = append(s.steps, step{name, undo})
}

// Release drops all undos: the operation succeeded.
func (s *Stack) Release() { s.steps = nil }

// Rollback runs every undo, newest first, even if some fail. Its context does not end with the operation's. It returns
// the failures.
func (s *Stack) Rollback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget)
	defer cancel()
	var errs []error
	for i := len(s.steps) - 1; i >= 0; i-- {
		if err := s.steps[i].undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", s.steps[i].name, err))
		}
	}
	s.steps = nil
	return errors.Join(errs...)
}

// OnError is deferred at the top of an operation with the address of its named error. It rolls back a failed operation,
// and releases a successful one. The operation's own error stays first.
func (s *Stack) OnError(ctx context.Context, err *error) {
	if *err == nil {
		s.Release()
		return
	}
	if undoErr := s.Rollback(ctx); undoErr != nil {
		*err = fmt.Errorf("%w (and %w)", *err, undoErr)
	}
}
