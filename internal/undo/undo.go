// Package undo is a rollback stack: each step of an operation registers how to
// undo it before the step is done.
package undo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// budget bounds a whole rollback: one that hangs must not hang its caller.
const budget = 30 * time.Second

// Stack holds the undos of one operation, last in, first out. The zero value
// is ready. It is not safe for concurrent use.
type Stack struct{ steps []step }

type step struct {
	name string
	undo func(context.Context) error
}

// Push registers how to undo the step called name.
func (s *Stack) Push(name string, undo func(context.Context) error) {
	s.steps = append(s.steps, step{name, undo})
}

// Release forgets all undos: the operation succeeded.
func (s *Stack) Release() { s.steps = nil }

// Rollback runs every undo, newest first, to the end, whatever each returns,
// on a context that does not end with the operation's. It returns what failed.
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

// OnError is deferred at the top of an operation with the address of its named
// error: a failed operation is rolled back, a successful one released. The
// operation's own error stays the first in line.
func (s *Stack) OnError(ctx context.Context, err *error) {
	if *err == nil {
		s.Release()
		return
	}
	if undoErr := s.Rollback(ctx); undoErr != nil {
		*err = fmt.Errorf("%w (and %w)", *err, undoErr)
	}
}
